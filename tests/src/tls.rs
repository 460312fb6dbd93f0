//! TLS before a plain server: a certificate authority of the test's own, its certificates, and a TLS front.

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

/// A certificate authority that only programs with its bundle trust.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    bundle: NamedTempFile,
}

impl Authority {
    /// Creates an authority, with its own certificate in a PEM file.
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

    /// Returns the PEM file of the authority's certificate, for `SSL_CERT_FILE`.
    pub fn bundle(&self) -> &Path {
        self.bundle.path()
    }

    /// Configures a TLS server with a certificate for `name` that expires at the beginning of `end_year`.
    fn server(&self, name: &str, end_year: i32) -> Result<rustls::ServerConfig> {
        let (certificate, key) = self.certify(name, end_year)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Ok(rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into())?)
    }

    /// Writes a long-lived certificate for `name` and its key as PEM files to this directory.
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
    /// Starts a front for `upstream` (`http://host:port` or `redis://host:port`) with a long-lived
    /// certificate for `localhost`.
    pub async fn start(authority: &Authority, upstream: &str) -> Result<Self> {
        Self::start_as(authority, "localhost", 4000, upstream).await
    }

    /// Starts a front with a certificate for this name that expires at the beginning of `end_year`.
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
