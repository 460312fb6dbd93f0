//! `kya sign`: signs a request as services for agents ask for it (ERC-8128), and sends it if wanted.

use std::{fs, io::Read as _, path::PathBuf};

use alloy::primitives::hex;
use clap::Args;
use host_kit::native::read_body;
use registry_core::{
    eth::redact::public_origin,
    gate::{Account, Content, Origin, Request, SigningTerms, Unsigned},
    liability::{Acceptance, HEADER},
};
use reqwest::{
    Method,
    header::{HeaderName, HeaderValue},
};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};
use url::{Position, Url};

use crate::{
    chain::{client, http_url},
    discovery,
    report::{CommandFailure, Exit, Report, Result, may_pass},
    signer::{KeyOptions, Signer},
};

/// The largest answer that is shown, in bytes.
const LARGEST_ANSWER: usize = 16 << 20;

/// Sign a request: print its headers, a line each, or send it and show the answer
#[derive(Clone, Debug, Args)]
pub struct Sign {
    /// GET, POST, ...
    method: Method,
    /// The request's URL.
    #[arg(value_parser = http_url)]
    url: Url,
    #[command(flatten)]
    key: KeyOptions,
    /// The chain's id. Without it the service is asked.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    chain: Option<u64>,
    /// A header that is sent, as `Name: value`; a Content-Type is signed.
    #[arg(long = "header", short = 'H', value_name = "HEADER", value_parser = header)]
    headers: Vec<(String, String)>,
    /// The file with the content; - is standard input.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// The file with the liable person's acceptance, which is sent along.
    #[arg(long, value_name = "FILE")]
    acceptance: Option<PathBuf>,
    /// Send it, and show the answer: exit status 0 for a status below 400, 3 for 408, 429 and from 500 on.
    #[arg(long)]
    send: bool,
}

impl Sign {
    /// Creates a GET request without headers or content.
    pub(crate) fn get(url: Url) -> Self {
        Self {
            method: Method::GET,
            url,
            key: KeyOptions::default(),
            chain: None,
            headers: Vec::new(),
            data: None,
            acceptance: None,
            send: true,
        }
    }

    /// Signs, and sends if wanted. Errors: the request cannot be signed, or there is no answer.
    pub async fn run(&self) -> Result<Report> {
        let signer = self.key.signer()?;
        let chain = match self.chain {
            Some(chain) => chain,
            None => discovery::find(&self.url).await?.chain_id,
        };
        if self.send {
            return send(self, &signer, chain).await;
        }
        let headers = self.signed(&signer, chain, &self.content()?).await?;
        let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let document = headers.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str())));
        Ok(Report::done(lines.join("\n"), Value::Object(document.collect())))
    }

    fn content(&self) -> Result<Vec<u8>> {
        let Some(file) = &self.data else { return Ok(Vec::new()) };
        let mut content = Vec::new();
        let read = match file.as_os_str() == "-" {
            true => std::io::stdin().read_to_end(&mut content).map(drop),
            false => fs::read(file).map(|bytes| content = bytes),
        };
        read.map_err(|error| CommandFailure::refused(format!("{}: {error}", file.display())))?;
        Ok(content)
    }

    /// Returns all headers of the signed request, with names in lower case.
    async fn signed(&self, signer: &Signer, chain: u64, content: &[u8]) -> Result<Vec<(String, String)>> {
        let mut headers = self.headers.clone();
        if let Some(file) = &self.acceptance {
            let text = fs::read_to_string(file);
            let text =
                text.map_err(|error| CommandFailure::refused(format!("{}: {error}", file.display())))?;
            let acceptance = Acceptance::from_json(text.trim());
            let refused = |problem| CommandFailure::refused(format!("{}: {problem}", file.display()));
            headers.push((HEADER.to_ascii_lowercase(), acceptance.map_err(refused)?.to_header()));
        }
        let origin = Origin::parse(&self.url.origin().ascii_serialization());
        let origin =
            origin.ok_or_else(|| CommandFailure::refused("the URL has to be one of http or https"))?;
        let fields: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let target = &self.url[Position::BeforePath..Position::AfterQuery];
        let request = Request {
            method: self.method.as_str(),
            origin: &origin,
            target,
            fields: &fields,
            content: Content::Whole(content),
        };
        let mut nonce = [0; 16];
        SystemRandom::new().fill(&mut nonce).map_err(|_| CommandFailure::refused("no random numbers"))?;
        let (nonce, created) = (hex::encode(nonce), crate::now().seconds());
        let account = Account { chain, address: signer.address() };
        let terms = SigningTerms { account, created, valid_seconds: 60, nonce: &nonce };
        let unsigned = Unsigned::new(&request, &terms);
        let unsigned = unsigned
            .ok_or_else(|| CommandFailure::refused("the request has a value that cannot be signed"))?;
        let signature = signer.message(unsigned.message()).await?;
        let signed = unsigned.headers(&signature);
        headers.extend(signed.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Ok(headers)
    }
}

/// Parses a header argument, with the name in lower case.
fn header(text: &str) -> Result<(String, String), &'static str> {
    let parsed = text.split_once(':').and_then(|(name, value)| {
        let (name, value) = (name.trim().parse::<HeaderName>().ok()?, value.trim());
        HeaderValue::from_str(value).ok()?;
        Some((name.as_str().to_owned(), value.to_owned()))
    });
    parsed.ok_or("must be `Name: value`, as HTTP has it")
}

/// Sends the request, signed, and shows the answer. Errors: it cannot be signed, or there is no answer.
pub(crate) async fn send(request: &Sign, signer: &Signer, chain: u64) -> Result<Report> {
    let content = request.content()?;
    let headers = request.signed(signer, chain, &content).await?;
    let silent =
        |_| CommandFailure::try_again(format!("{} does not answer", public_origin(request.url.as_str())));
    let mut asked = client()?.request(request.method.clone(), request.url.clone()).body(content);
    for (name, value) in &headers {
        asked = asked.header(name, value);
    }
    let response = asked.send().await.map_err(silent)?;
    let status = response.status().as_u16();
    let body = read_body(response, LARGEST_ANSWER).await.map_err(silent)?;
    let body = body.ok_or_else(|| {
        CommandFailure::refused(format!("the answer, HTTP {status}, is larger than {LARGEST_ANSWER} bytes"))
    })?;
    let text = String::from_utf8_lossy(&body).into_owned();
    let document = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.as_str()));
    let json = json!({ "status": status, "body": document, "signedBy": signer.address().to_string() });
    let exit = match status {
        ..400 => Exit::Done,
        _ if may_pass(status) => Exit::TryAgain,
        _ => Exit::Refused,
    };
    let lines: Vec<&str> = text.trim_end().lines().collect();
    Ok(Report { exit, ..Report::done(format!("HTTP {status}\n{}", lines.join("\n")), json) })
}
