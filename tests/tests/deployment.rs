//! The relayer as its README deploys it, and the unit files of both daemons.
//!
//! 1. Behind the README's nginx each client is limited by its own address, even if it forges
//!    `X-Forwarded-For`. That nginx forwards relays, answers large bodies with 413, and keeps the metrics
//!    private.
//! 2. systemd accepts every line of the unit files.

use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::{env, fs};

use e2e::anvil::{AnvilOptions, dev_key};
use e2e::chain::Chain;
use e2e::daemon::RelayerDaemon;
use e2e::relay::{RequestFactory, attest};
use e2e::repo;
use e2e::seed::wallet;
use e2e::servers::documented_nginx;

#[tokio::test]
async fn behind_nginx_a_client_has_its_own_limit_and_no_metrics() {
    let chain = Chain::start(AnvilOptions::default()).await.unwrap();
    let options = chain.daemon(&dev_key(9)).without("RATE_LIMIT_PER_IP");
    let daemon = RelayerDaemon::start(&options.var("TRUSTED_PROXIES", "127.0.0.1")).await.unwrap();
    let nginx = documented_nginx("relayer-daemon/README.md", "http://127.0.0.1:3001", daemon.url()).await;
    let (_nginx, proxied) = nginx.unwrap();

    let (desk, client) = (RequestFactory::of(&chain), proxied.from_address(Ipv4Addr::new(127, 0, 0, 2)));
    let answer = client.relay(&desk.registration(&wallet("new"), 0)).await.ok();
    assert_eq!((&answer["success"], &answer["agentId"]), (&true.into(), &1.into()), "{answer}");
    assert_eq!(client.get("/readyz").await.status, 200);
    for (answer, status) in
        [(client.post_relay("x".repeat(64 * 1024 + 1)).await, 413), (client.get("/metrics").await, 403)]
    {
        assert!(answer.status == status && answer.text.contains("nginx"), "{answer:?}");
    }
    let own = daemon.client().get("/metrics").await;
    assert!(own.status == 200 && own.text.contains("relayer_"), "{own:?}");

    let (signer, client) = (wallet("cheap"), proxied.from_address(Ipv4Addr::new(127, 0, 0, 3)));
    let mut request = desk.draft(&signer, 0, &attest(1));
    // A target that is not allowed costs no call to the chain.
    request.to = signer.address();
    let request = desk.sign(&signer, request);
    for index in 0..20 {
        let forged = client.forwarded_for(&format!("203.0.113.{index}"));
        assert_eq!(forged.relay(&request).await.status, 403, "request {index}");
    }
    for forged in ["203.0.113.99", "127.0.0.1", "nonsense"] {
        let answer = client.forwarded_for(forged).relay(&request).await;
        answer.refused(429, "IP_RATE_LIMITED", "IP rate limit exceeded (20/hour)");
    }
    let other = proxied.from_address(Ipv4Addr::new(127, 0, 0, 4));
    assert_eq!(other.relay(&request).await.status, 403, "another address has a limit of its own");
}

#[test]
fn systemd_accepts_every_line_of_the_unit_files() {
    let directory = tempfile::tempdir().unwrap();
    // systemd checks that the program exists, and splits a path at a space.
    let program = directory.path().join("program");
    symlink(env::current_exe().unwrap(), &program).unwrap();
    // The relayer's drop-ins are verified together with its unit.
    let drop_ins = "relayer-daemon/systemd/relayer-daemon.service.d";
    let copies = directory.path().join("relayer-daemon.service.d");
    fs::create_dir(&copies).unwrap();
    let mut count = 0;
    for drop_in in fs::read_dir(repo::root().join(drop_ins)).unwrap() {
        let drop_in = drop_in.unwrap();
        fs::copy(drop_in.path(), copies.join(drop_in.file_name())).unwrap();
        count += 1;
    }
    assert_eq!(count, 3);
    for (name, service) in
        [("relayer-daemon", "relayer-daemon"), ("kya-gate", "kya-gate"), ("kya", "kya-attest")]
    {
        let file = format!("{service}.service");
        let unit = fs::read_to_string(repo::root().join(name).join("systemd").join(&file)).unwrap();
        let verify = |unit: &str| {
            let path = directory.path().join(&file);
            let unit = unit.replace(&format!("/usr/local/bin/{name}"), program.to_str().unwrap());
            fs::write(&path, unit).unwrap();
            let output =
                Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output().unwrap();
            // systemd only warns of a line that it does not understand. Other units may cause warnings too.
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), said.lines().any(|line| line.contains(&file)), said)
        };
        let (accepted, named, said) = verify(&unit);
        assert!(accepted && !named, "{said}");
        let (_, named, said) = verify(&unit.replace("ProtectSystem=", "ProtectSistem="));
        assert!(named, "a wrong line is found: {said}");
        if name == "relayer-daemon" {
            let broken = copies.join("broken.conf");
            fs::write(&broken, "[Service]\nLoadCredentials=x").unwrap();
            let (_, named, said) = verify(&unit);
            assert!(named, "a wrong line of a drop-in is found: {said}");
            fs::remove_file(broken).unwrap();
        }
    }
}
