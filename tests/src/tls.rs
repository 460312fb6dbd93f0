//! HTTPS before a node: a certificate authority of our own, certificates by it, and a front that speaks TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tempfile::NamedTempFile;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::http;

/// A certificate authority that is trusted only where its bundle is named.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    bundle: NamedTempFile,
}

impl Authority {
    /// A new one, its own certificate in a PEM file.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(rcgen::DnType::CommonName, "Test authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let bundle = NamedTempFile::new()?;
        std::fs::write(bundle.path(), issuer.pem())?;
        Ok(Self { issuer, bundle })
    }

    /// Its certificate as a PEM file: what `SSL_CERT_FILE` names.
    pub fn bundle(&self) -> &Path {
        self.bundle.path()
    }

    /// A certificate for `name` that ends `end_year`, and its key, as a TLS server has them.
    fn server(&self, name: &str, end_year: i32) -> Result<rustls::ServerConfig> {
        let (certificate, key) = self.certify(name, end_year)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Ok(rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into())?)
    }

    /// A certificate for `name` that is good for long, and its key, as PEM files in this directory.
    pub fn files(&self, name: &str, directory: &Path) -> Result<[PathBuf; 2]> {
        let (certificate, key) = self.certify(name, 4000)?;
        let files = ["certificate.pem", "key.pem"].map(|file| directory.join(file));
        for (file, text) in files.iter().zip([certificate.pem(), key.serialize_pem()]) {
            std::fs::write(file, text)?;
        }
        Ok(files)
    }

    fn certify(&self, name: &str, end_year: i32) -> Result<(Certificate, KeyPair)> {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(end_year, 1, 1);
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?, key))
    }
}

/// A TLS server before a plain one; dropping it closes its port and every connection.
#[derive(Debug)]
pub struct TlsFront {
    port: u16,
    _server: JoinSet<()>,
}

impl TlsFront {
    /// Before `upstream` (`http://host:port` or `redis://host:port`), with a certificate for `localhost` that
    /// is good for long.
    pub async fn start(authority: &Authority, upstream: &str) -> Result<Self> {
        Self::start_as(authority, "localhost", 4000, upstream).await
    }

    /// The same with a certificate for another name, or another end.
    pub async fn start_as(authority: &Authority, name: &str, end_year: i32, upstream: &str) -> Result<Self> {
        let acceptor = TlsAcceptor::from(Arc::new(authority.server(name, end_year)?));
        let plain = ["http://", "redis://"].iter().find_map(|scheme| upstream.strip_prefix(scheme));
        let upstream = plain.context("a plain upstream")?.to_owned();
        let serve = http::serve(move |stream| {
            let (acceptor, upstream) = (acceptor.clone(), upstream.clone());
            async move {
                // A client that rejects the certificate hangs up.
                let mut stream = acceptor.accept(stream).await?;
                let mut upstream = TcpStream::connect(upstream).await?;
                copy_bidirectional(&mut stream, &mut upstream).await
            }
        });
        let (port, server) = serve.await?;
        Ok(Self { port, _server: server })
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }
}
