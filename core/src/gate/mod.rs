//! A gate in front of a service. It decides whether a request is signed by the wallet that it names, and
//! whether the route serves that wallet's agent.
//!
//! The signature is ERC-8128 over HTTP Message Signatures (RFC 9421). A host reads a request and carries out
//! the steps that this module asks for:
//!
//! ```text
//! Request, SignatureRules --> Attempts --> Attempt --------> AccountQuery --> AccountState, Verdict
//!                       |            |                                    |
//!                       |          nonce <-- admitted <-- AgentPolicy <--------+
//!                       v            v                      v
//!                    RefusalCode      Outcome::Admitted    Outcome::Denied ----> GateAnswer
//! ```
//!
//! The host keeps the clock, the nonces and the verdicts. It spends a nonce last, atomically, and only for a
//! request that it admits; it remembers the nonce for [`SKEW`] seconds beyond [`Attempt::valid_until`].
//!
//! | file | what it holds |
//! |---|---|
//! | `request` | a request as the client sent it, with the origin that was configured |
//! | `request_fault` | requests that proxy, gate and service may read in different ways |
//! | `structured`, `base`, `digest` | structured fields, signature bases, content digests: the RFCs |
//! | `dialect` | what differs between the two forms of ERC-8128 |
//! | `candidate`, `verifier` | one signature; all of a request's, in their order |
//! | `account`, `read_limits` | the query about an account; limits on such queries |
//! | `attested` | the query for attestations by the liable wallet, where no index has them |
//! | `api_terms` | which answers of the read API are verdicts |
//! | `decision` | the order of the steps, for hosts to drive |
//! | `verdict` | a verdict, and the findings on its agent's liable wallet |
//! | `policy` | which agents are served |
//! | `domain_book` | statements of domains' files about liable wallets, over time |
//! | `settings` | the policies of a configuration file |
//! | `record` | records of admissions, which can be verified years later |
//! | `output_headers` | the headers for the upstream, and names that services read as theirs |
//! | `refusal`, `answer` | the stable codes; status, challenge, headers and body |
//! | `signing` | the client's side: the message to sign, and the headers of a signed request |
//! | `discovery` | the document that tells clients the requirements of routes |
//!
//! Signatures with a deployment around them (ERC-6492) are [`RefusalCode::UnsupportedAccount`]: verifying
//! them means running the deployment.

mod account;
mod answer;
mod api_terms;
mod attested;
mod base;
mod candidate;
mod decision;
mod dialect;
mod digest;
mod discovery;
mod domain_book;
mod output_headers;
mod policy;
mod read_limits;
mod record;
mod refusal;
mod request;
mod request_fault;
mod settings;
mod signing;
mod structured;
mod verdict;
mod verifier;

pub use account::{AccountFacts, AccountQuery};
pub use answer::{GateAnswer, Links, Outcome, Subject, Unavailable};
pub use api_terms::ApiTerms;
pub use attested::AttestedQuery;
pub use base::signature_base;
pub use candidate::{AccountState, Attempt, BASELINE_VALIDITY, Posture, SKEW, SignatureRules, WithoutNonce};
pub use decision::{AcceptanceStep, AccountStep, AttestedStep, DecisionStep, NonceStep, Spending};
pub use dialect::{Account, Dialect};
pub use discovery::discovery_document;
pub use domain_book::{DomainBook, DomainState, FetchOutcome};
pub use output_headers::{OUTPUT_HEADERS, is_lookalike, reads_as_output_header};
pub use policy::{AgentDenial, AgentPolicy, LiabilityRule, PolicyRule, Wallets};
pub use read_limits::{API_TIMEOUT_MS, Allowance, ReadRate, limits, reserve};
pub use record::{Admission, AdmissionRecord, Grounds, ProvedAcceptance, RecordError, Trusted, VerifiedBy};
pub use refusal::RefusalCode;
pub use request::{Content, Origin, Request, origin_form};
pub use request_fault::{RequestFault, RequestRules, is_ambiguous};
pub use settings::{DiscoveryTable, PolicyTable, RoutePolicy, SettingError, SharedPolicySettings, policies};
pub use signing::{SigningTerms, Unsigned};
pub use verdict::{DomainWord, Verdict, VerdictAgent};
pub use verifier::Attempts;
