//! Fetches from servers that misbehave.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use alloy_primitives::{Address, B256};
use axum::Router;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use registry_core::{gate::FetchOutcome, liability::DomainName};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::fetch::{DomainResolver, Fetcher, LookUp};
use crate::{
    check::Sources,
    http::now,
    settings::{DomainSettings, Settings},
};

/// The longest time for a fetch that ends by itself.
const LIMIT: Duration = Duration::from_secs(60);
/// The longest time for a fetch that the server never ends.
const SHORT: Duration = Duration::from_secs(2);

/// A certificate authority, and the file for `liable.ca-file`.
struct Authority(CertifiedIssuer<'static, KeyPair>, NamedTempFile);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), issuer.pem()).unwrap();
        Self(issuer, file)
    }

    fn acceptor(&self, name: &str, end_year: i32) -> TlsAcceptor {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(end_year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], key.into())
                .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Starts a server that answers each request with these pieces, with pauses between them, and then stays
    /// open. Returns its address and the count of its connections.
    async fn serve(&self, name: &str, end_year: i32, pieces: Vec<Vec<u8>>) -> (SocketAddr, Arc<AtomicUsize>) {
        let (acceptor, listener) =
            (self.acceptor(name, end_year), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let (acceptor, pieces) = (acceptor.clone(), pieces.clone());
                tokio::spawn(async move {
                    let mut stream = acceptor.accept(stream).await?;
                    let mut head = [0; 2_048];
                    let _ = stream.read(&mut head).await?;
                    for piece in pieces {
                        stream.write_all(&piece).await?;
                        stream.flush().await?;
                        tokio::time::sleep(SHORT / 20).await;
                    }
                    std::future::pending::<io::Result<()>>().await
                });
            }
        });
        (address, count)
    }

    fn fetcher(&self, look_up: LookUp, may_connect: fn(IpAddr) -> bool, limit: Duration) -> Fetcher {
        let settings = DomainSettings {
            refresh: Duration::from_secs(900),
            new_wallet_delay_seconds: 0,
            resolve: BTreeMap::new(),
            ca_file: Some(self.1.path().to_owned()),
        };
        let _ = rustls::crypto::ring::default_provider().install_default();
        let addresses = DomainResolver { set: settings.resolve.clone(), look_up, may_connect };
        Fetcher::with(&settings, addresses, limit).unwrap()
    }
}

fn acme() -> DomainName {
    DomainName::parse("acme.example").unwrap()
}

/// Returns a look-up that finds these one after another, the last one for ever, and its count of calls.
fn finding(answers: Vec<Vec<SocketAddr>>) -> (LookUp, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let look_up: LookUp = Arc::new(move |name| {
        assert_eq!(name, "acme.example");
        let number = counted.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        let found = answers[number].clone();
        Box::pin(async move { Ok(found) })
    });
    (look_up, count)
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

#[tokio::test]
async fn only_a_whole_file_of_the_domain_itself_is_read() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let other = authority.serve("acme.example", 4000, vec![answer("200 OK", b"another")]).await;
    let moved = |status: &str| {
        vec![answer(&format!("{status}\r\nlocation: https://acme.example:{}/file", other.0.port()), b"")]
    };
    let (file, large) = (answer("200 OK", b"a file"), answer("200 OK", &vec![b' '; 300 * 1024]));
    let chunked = |times| {
        let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        [vec![head], vec![chunk; times]].concat()
    };
    // A byte now and then, each before any pause could be too long.
    let drip =
        [vec![b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n".to_vec()], vec![b" ".to_vec(); 100]].concat();
    let is = |error: &str| Err(error.to_owned());
    for (authority_of, name, end_year, pieces, expected) in [
        (&authority, "acme.example", 4000, vec![file.clone()], Ok(Some("a file".to_owned()))),
        (&authority, "acme.example", 4000, vec![answer("404 Not Found", b"")], Ok(None)),
        (&authority, "acme.example", 4000, vec![answer("410 Gone", b"")], Ok(None)),
        (&authority, "acme.example", 4000, vec![answer("503 Unavailable", b"")], is("status 503")),
        (&authority, "acme.example", 4000, vec![answer("206 Partial Content", b"a")], is("status 206")),
        (&authority, "acme.example", 4000, moved("301 Moved"), is("status 301")),
        (&authority, "acme.example", 4000, moved("307 Moved"), is("status 307")),
        (&authority, "acme.example", 4000, vec![large], is("more than 256 KiB")),
        (&authority, "acme.example", 4000, chunked(5), is("more than 256 KiB")),
        (&authority, "acme.example", 4000, vec![answer("200 OK", b"\xff")], is("no UTF-8")),
        (&authority, "acme.example", 4000, vec![], is("no answer in time")),
        (&authority, "acme.example", 4000, drip, is("no answer in time")),
        (&authority, "other.example", 4000, vec![file.clone()], is("certificate")),
        (&authority, "acme.example", 2020, vec![file.clone()], is("certificate")),
        (&stranger, "acme.example", 4000, vec![file], is("certificate")),
    ] {
        let (address, _) = authority_of.serve(name, end_year, pieces).await;
        let (look_up, _) = finding(vec![vec![address]]);
        let limit = if expected == is("no answer in time") { SHORT } else { LIMIT };
        let fetched = authority.fetcher(look_up, |_| true, limit).fetch(&acme()).await;
        match (&fetched, &expected) {
            (Err(error), Err(words)) => assert!(error.contains(words.as_str()), "{words}: {error}"),
            _ => assert_eq!(fetched, expected, "{name} {end_year}"),
        }
    }
    assert_eq!(other.1.load(Ordering::SeqCst), 0, "no redirect is followed");
}

#[tokio::test]
async fn a_name_is_looked_up_once_and_connected_to_where_every_address_may_be() {
    let authority = Authority::new();
    let (here, connections) = authority.serve("acme.example", 4000, vec![answer("200 OK", b"a file")]).await;
    let inside = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), here.port()));
    let not_inside: fn(IpAddr) -> bool = |address| address != IpAddr::from([127, 0, 0, 2]);
    let refused = |address: &str| Err(format!("it has the address {address}, which is not public"));

    let (look_up, asked) = finding(vec![vec![here], vec![inside]]);
    let fetcher = authority.fetcher(look_up, not_inside, LIMIT);
    assert_eq!(fetcher.fetch(&acme()).await, Ok(Some("a file".to_owned())));
    // A later address of the name is not looked up within a fetch, and the next fetch is refused.
    assert_eq!((asked.load(Ordering::SeqCst), connections.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(fetcher.fetch(&acme()).await, refused("127.0.0.2"));

    for (found, may_connect, other) in [
        (vec![here, inside], not_inside, "127.0.0.2"),
        (vec![inside], not_inside, "127.0.0.2"),
        (vec![here], super::addresses::is_public as fn(IpAddr) -> bool, "127.0.0.1"),
    ] {
        let (look_up, _) = finding(vec![found]);
        let fetcher = authority.fetcher(look_up, may_connect, LIMIT);
        assert_eq!(fetcher.fetch(&acme()).await, refused(other));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1, "nothing was connected to");
}

/// Starts the endpoint of a chain on which no account has code. Returns its address and the count of calls.
async fn chain_without_code() -> (SocketAddr, Arc<AtomicUsize>) {
    const SECONDS: u64 = 1_800_000_000;
    // The results of `aggregate3`: the block's parent, chain, time and number, and the account lens's answer.
    let results: [&[u64]; 5] = [&[7], &[1], &[SECONDS], &[8], &[0, 0]];
    let (mut heads, mut tails) = (Vec::new(), Vec::new());
    for words in results {
        heads.push(32 * (results.len() + tails.len()) as u64);
        tails.extend([1, 64, 32 * words.len() as u64]);
        tails.extend(words);
    }
    let words = [vec![32, results.len() as u64], heads, tails].concat();
    let called = words.iter().fold("0x".to_owned(), |data, word| format!("{data}{word:064x}"));
    let (parent, hash) = (B256::with_last_byte(7), B256::with_last_byte(8));
    let timestamp = format!("{SECONDS:#x}");
    let header = json!({ "number": "0x8", "hash": hash, "parentHash": parent, "timestamp": timestamp });
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let answer = move |batch: String| {
        let result = |request: &Value| {
            let is_call = request["method"] == "eth_call";
            counted.fetch_add(usize::from(is_call), Ordering::SeqCst);
            let result = if is_call { json!(called) } else { header.clone() };
            json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })
        };
        let answer: Value = match serde_json::from_str(&batch).unwrap() {
            Value::Array(requests) => requests.iter().map(result).collect(),
            request => result(&request),
        };
        async move { answer.to_string() }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, Router::new().fallback(answer)).await });
    (address, count)
}

#[tokio::test]
async fn a_domains_wallets_are_read_whatever_reads_requests_have_left() {
    let authority = Authority::new();
    let wallet = |number| {
        json!({
            "chainId": 1, "registry": Address::ZERO, "wallet": Address::repeat_byte(number).to_checksum(None),
            "notBefore": 0, "notAfter": 1, "signature": "0x",
        })
    };
    let file = json!({ "liable": [wallet(1), wallet(2), wallet(3)] }).to_string();
    let (server, _) = authority.serve("acme.example", 4000, vec![answer("200 OK", file.as_bytes())]).await;
    let (chain, reads) = chain_without_code().await;
    let settings = format!(
        r#"
        origin = "https://api.example"
        chain = {{ id = 1, rpc = ["http://{chain}"], max-head-age-seconds = 0, reads-per-second = 1 }}
        kya = {{ registry = "{}" }}
        policy.api = {{ allow = ["provision"], liable.domains = ["acme.example"] }}
        liable = {{ resolve = {{ "acme.example" = "{server}" }}, ca-file = "{}" }}
        "#,
        Address::ZERO,
        authority.1.path().display(),
    );
    let _ = rustls::crypto::ring::default_provider().install_default();
    let sources = Sources::new(&Settings::parse_embedded(&settings, None).unwrap()).unwrap();
    let fetched = sources.domains.refresh(now()).await;
    assert!(matches!(fetched[..], [(_, FetchOutcome::File(..))]), "{fetched:?}");
    assert_eq!(reads.load(Ordering::SeqCst), 3);
}
