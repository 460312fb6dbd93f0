//! A key in AWS KMS, of the kind `ECC_SECG_P256K1`. Region, credentials and endpoint are found as AWS's tools
//! find them: `AWS_REGION`, `AWS_ACCESS_KEY_ID`, a profile, a web identity, the machine's role, ....

use std::error::Error;

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

use super::SignerError;

/// A key in KMS.
#[derive(Debug, Clone)]
pub(super) struct KmsSigner(AwsSigner);

impl KmsSigner {
    /// The key with this id, ARN or alias. Reads its public key.
    ///
    /// # Errors
    /// [`SignerError`].
    pub(super) async fn new(key_id: String) -> Result<Self, SignerError> {
        let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        let config = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http)
            // The sender tries again by itself.
            .retry_config(RetryConfig::standard().with_max_attempts(2))
            .load()
            .await;
        let client = aws_sdk_kms::Client::new(&config);
        AwsSigner::new(client, key_id, None).await.map(Self).map_err(|error| refused(&error))
    }

    pub(super) fn address(&self) -> Address {
        self.0.address()
    }

    pub(super) async fn sign(&self, transaction: &TxEip1559) -> Result<Signature, SignerError> {
        self.0.sign_hash(&transaction.signature_hash()).await.map_err(|error| refused(&error))
    }
}

/// AWS's errors say what is wrong in their causes only.
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
