//! The reason why a connection to an RPC endpoint failed, for the operator.
//!
//! The HTTP client's own text names the URL, which may hold a provider's key. Its causes do not, so the
//! reason is read from the error's chain of sources, by type where there is one.

use std::{error::Error, io};

use rustls::CertificateError;
use thiserror::Error;

/// The reason why a request got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum ConnectionError {
    /// No answer within the timeout: to the connection or to the request.
    #[error("timed out")]
    TimedOut,
    #[error("host name not resolved")]
    NameNotResolved,
    #[error("connection refused")]
    Refused,
    #[error("host unreachable")]
    HostUnreachable,
    /// The certificate's issuer is not among those that this machine trusts.
    #[error("certificate not trusted")]
    CertificateNotTrusted,
    #[error("certificate expired")]
    CertificateExpired,
    #[error("certificate is for another host name")]
    CertificateForAnotherName,
    /// Another mistake in certificate or handshake; often plain HTTP on the other side.
    #[error("TLS handshake failed")]
    Tls,
    /// The connection was closed before the answer was complete.
    #[error("connection closed early")]
    Closed,
}

impl ConnectionError {
    /// Returns the first known cause in the error's chain.
    pub(super) fn of(error: &reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::TimedOut;
        }
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(current) = cause {
            if let Some(found) = Self::from_cause(current) {
                return found;
            }
            cause = current.source();
        }
        Self::Closed
    }

    fn from_cause(cause: &(dyn Error + 'static)) -> Option<Self> {
        if let Some(error) = cause.downcast_ref::<rustls::Error>() {
            return Some(Self::from_tls(error));
        }
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            // An I/O error's source skips the error it wraps, which may be another one.
            let wrapped = error.get_ref().and_then(|wrapped| Self::from_cause(wrapped));
            return wrapped.or_else(|| Self::from_kind(error.kind()));
        }
        // hyper-util has no public type for this one.
        cause.to_string().starts_with("dns error").then_some(Self::NameNotResolved)
    }

    const fn from_kind(kind: io::ErrorKind) -> Option<Self> {
        match kind {
            io::ErrorKind::ConnectionRefused => Some(Self::Refused),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Some(Self::HostUnreachable),
            io::ErrorKind::TimedOut => Some(Self::TimedOut),
            _ => None,
        }
    }

    fn from_tls(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(problem) => match problem {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    Self::CertificateExpired
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    Self::CertificateForAnotherName
                }
                _ => Self::CertificateNotTrusted,
            },
            _ => Self::Tls,
        }
    }
}
