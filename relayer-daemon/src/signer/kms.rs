//! A key in AWS KMS, of the kind `ECC_SECG_P256K1`. Region, credentials and endpoint are found as AWS's tools
//! find them: `AWS_REGION`, `AWS_ACCESS_KEY_ID`, a profile, a web identity, the machine's role, and others.

use std::{error::Error, sync::Arc};

use alloy::{
    consensus::{SignableTransaction as _, TxEip1559},
    primitives::{Address, Signature},
    signers::Signer as _,
};
use alloy_signer_aws::AwsSigner;
use aws_config::{BehaviorVersion, retry::RetryConfig};
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, rustls_provider::CryptoMode},
};
use futures_util::FutureExt as _;
use tokio::sync::OnceCell;

use super::SignerError;

/// A key in KMS, which is asked for its public key before its first use.
#[derive(Debug, Clone)]
pub(super) struct KmsSigner {
    key_id: Arc<str>,
    opened: Arc<OnceCell<AwsSigner>>,
}

impl KmsSigner {
    /// Creates the signer of the key with this id, ARN or alias.
    pub(super) fn new(key_id: &str) -> Self {
        Self { key_id: key_id.into(), opened: Arc::default() }
    }

    /// Reads its public key, if that is not known yet.
    ///
    /// # Errors
    /// [`SignerError`]; the next call tries again.
    pub(super) async fn open(&self) -> Result<Address, SignerError> {
        Ok(self.opened().await?.address())
    }

    async fn opened(&self) -> Result<&AwsSigner, SignerError> {
        // Boxed: AWS's futures are nested deeper than the compiler looks.
        self.opened.get_or_try_init(|| open(self.key_id.to_string()).boxed()).await
    }

    pub(super) async fn sign(&self, transaction: &TxEip1559) -> Result<Signature, SignerError> {
        let signer = self.opened().await?;
        signer.sign_hash(&transaction.signature_hash()).await.map_err(|error| refused(&error))
    }
}

async fn open(key_id: String) -> Result<AwsSigner, SignerError> {
    let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let config = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        // The sender tries again by itself.
        .retry_config(RetryConfig::standard().with_max_attempts(2))
        .load()
        .await;
    let client = aws_sdk_kms::Client::new(&config);
    AwsSigner::new(client, key_id, None).await.map_err(|error| refused(&error))
}

/// Converts AWS's errors, which say what is wrong only in their causes.
fn refused(error: &(dyn Error + 'static)) -> SignerError {
    let mut causes = vec![error.to_string()];
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes.dedup();
    SignerError::Refused(causes.join(": "))
}
