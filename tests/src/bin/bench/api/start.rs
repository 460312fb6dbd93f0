//! What a deployment uploads, and how soon a new instance answers.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::seed;
use e2e::server::Kind;
use flate2::{Compression, write::GzEncoder};

use super::Setup;
use crate::table::{Table, median, millis};

/// Starts that count, after one that fills the disk cache.
const STARTS: usize = 5;

pub(super) async fn measure(setup: &Setup) -> Result<String> {
    let mut table = Table::new(&["", "KiB gzipped", "first `/livez` ms", "then first `/kya` ms"]);
    for kind in Kind::ALL {
        let size = match kind {
            Kind::Express => String::new(),
            _ => format!("{:.1}", gzipped(setup, kind)? as f64 / 1024.0),
        };
        let (live, kya) = first_answers(setup, kind).await?;
        table.row(&[kind.name().to_owned(), size, millis(live), millis(kya)]);
    }
    Ok(format!(
        "### Size and start\n\n\
         All files of a Worker together; the first answers after the server listens, median of {STARTS} starts. Goals: 512 KiB for \
         the wasm, the first answer within 60 ms.\n\n{}",
        table.finish()
    ))
}

fn gzipped(setup: &Setup, kind: Kind) -> Result<usize> {
    let mut bytes = 0;
    for file in setup.bundles.files(kind)? {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&std::fs::read(file)?)?;
        bytes += encoder.finish()?.len();
    }
    Ok(bytes)
}

/// Medians: the first answer at all, and after it the first from the chain.
async fn first_answers(setup: &Setup, kind: Kind) -> Result<(Duration, Duration)> {
    let (mut live, mut kya) = (Vec::new(), Vec::new());
    let path = seed::kya("many 7");
    for start in 0..=STARTS {
        setup.chain.node.freshen().await?;
        let server = setup.start(kind).await?;
        let client = server.client();
        for (path, times) in [("/livez", &mut live), (path.as_str(), &mut kya)] {
            let began = Instant::now();
            let answer = client.get(path).await;
            ensure!(answer.status == 200, "{path}: {}", answer.text);
            if start > 0 {
                times.push(began.elapsed());
            }
        }
    }
    Ok((median(&live).context("samples")?, median(&kya).context("samples")?))
}
