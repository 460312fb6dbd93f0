//! The package of `python/` as its users install it. Its requests, tokens and registrations are tested
//! against the real gate, Worker and relayer in `kya_gate` and in [`crate::docs`].

use std::fs;

use e2e::process::output;
use e2e::{repo, signers};

#[tokio::test]
async fn it_is_typed_runs_on_its_oldest_python_and_its_wheel_has_what_it_needs() {
    let package = repo::root().join("python");
    let target = tempfile::tempdir().unwrap();
    let wheel = target.path().to_str().unwrap();
    let cache = format!("--cache-dir={wheel}/mypy");
    let pip =
        ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"];
    for arguments in [
        ["-m", "mypy", "src", &cache].as_slice(),
        &["-c", "import vermin; vermin.main()", "--target=3.10-", "--violations", "--no-tips", "src"],
        &["-m", "unittest", "discover", "-s", "tests"],
        &[pip.as_slice(), &["--wheel-dir", wheel, "."]].concat(),
    ] {
        let mut python = signers::with_package().await.unwrap();
        output(python.args(arguments).current_dir(&package)).await.unwrap();
    }
    let wheels = fs::read_dir(target.path())
        .unwrap()
        .filter_map(|entry| entry.unwrap().path().to_str().map(str::to_owned));
    let wheel = wheels.into_iter().find(|path| path.ends_with(".whl")).expect("a wheel");
    let mut python = signers::with_package().await.unwrap();
    // Python loads the package from the wheel alone, which marks its types.
    let load =
        "import agent_registry as a, pkgutil; pkgutil.get_data(a.__name__, 'py.typed'); print(a.__file__)";
    python.env("PYTHONPATH", &wheel).args(["-c", load]);
    let loaded = String::from_utf8(output(&mut python).await.unwrap()).unwrap();
    assert!(loaded.starts_with(&wheel), "{loaded}");
}
