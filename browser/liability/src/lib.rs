//! Acceptances of liable wallets, and the files of their domains, in web pages and Node, without a network.
//!
//! `agent-registry/liability` is a wasm module of its own beside the package's others. It checks signed
//! documents; signing them takes no code of the core and is JavaScript.

use alloy_primitives::{Address, U256};
use registry_browser_values::{
    error::RegistryError,
    member::{address, chain_id, invalid, member},
    value::{json_text, parse, text_of},
};
use registry_core::{
    api::error::Error,
    eth::timestamp::Timestamp,
    liability::{Acceptance, DomainFile, DomainName, LiableWallet, Moment, PinnedRecord, Problem},
};
use serde_json::{Map, Value, json};
use wasm_bindgen::prelude::*;

/// The shapes that wasm-bindgen cannot know: documents and options.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");

/// The rule of required members.
const NEEDED: &str = "has to be given";

/// Checks an acceptance, as an object, as JSON text or as the header's value, against its agent's record.
/// Plain signatures only: a wallet with code has to be asked on its chain.
///
/// @throws RegistryError with the code INVALID_PARAMETER for a member of `agent` or `place` that breaks its
/// rule
#[wasm_bindgen(js_name = checkAcceptance, unchecked_return_type = "CheckedAcceptance")]
pub fn check_acceptance(
    #[wasm_bindgen(unchecked_param_type = "Acceptance | string")] document: &JsValue,
    #[wasm_bindgen(unchecked_param_type = "RegisteredAgent")] agent: &JsValue,
    #[wasm_bindgen(unchecked_param_type = "Place")] place: &JsValue,
) -> Result<JsValue, RegistryError> {
    let ((record, scope), place) = (record(agent)?, ExpectedPlace::read(place)?);
    let text = document.as_string().unwrap_or_else(|| json_text(document));
    let read = if text.trim_start().starts_with('{') {
        Acceptance::from_json(&text)
    } else {
        Acceptance::from_header(&text)
    };
    let mut checked = Map::new();
    let problem = match read {
        Err(problem) => Some(problem),
        Ok(acceptance) => {
            checked.insert("digest".to_owned(), json!(acceptance.digest(&scope)));
            let holds = acceptance
                .check_place_and_time((place.chain_id, place.registry), place.moment)
                .and_then(|()| acceptance.check_record(&record))
                .and_then(|()| acceptance.check_signature(&scope));
            holds.err()
        }
    };
    tell(&mut checked, problem);
    parse(&Value::Object(checked).to_string())
}

/// Parses the text of a domain's file, and checks for each wallet of this registry that it has signed for the
/// domain in turn.
///
/// @throws RegistryError with the code INVALID_PARAMETER: the member of the file, or of `place`, that breaks
/// its rule
#[wasm_bindgen(js_name = readDomainFile, unchecked_return_type = "DomainFile")]
pub fn read_domain_file(
    text: &str,
    domain: &str,
    #[wasm_bindgen(unchecked_param_type = "Place")] place: &JsValue,
) -> Result<JsValue, RegistryError> {
    let place = ExpectedPlace::read(place)?;
    let domain = DomainName::parse(domain).ok_or(invalid("domain", DomainName::RULE))?;
    let file = DomainFile::read(text)?;
    let wallets = file.wallets(place.chain_id, place.registry);
    let is_here = |acceptance: &&Acceptance| {
        (acceptance.chain_id, acceptance.registry) == (place.chain_id, place.registry)
    };
    let document = json!({
        "domain": domain.as_str(),
        "wallets": wallets.map(|wallet| told(wallet, &domain, place.moment)).collect::<Vec<_>>(),
        "acceptances": file.acceptances.iter().filter(is_here).collect::<Vec<_>>(),
        "withdrawn": file.withdrawn,
        "notOurs": file.not_ours.iter().map(U256::to_string).collect::<Vec<_>>(),
    });
    parse(&document.to_string())
}

fn told(wallet: &LiableWallet, domain: &DomainName, moment: Moment) -> Value {
    let mut told = Map::from_iter([
        ("wallet".to_owned(), json!(wallet.wallet.to_checksum(None))),
        ("notBefore".to_owned(), json!(wallet.not_before)),
        ("notAfter".to_owned(), json!(wallet.not_after)),
    ]);
    for (name, claim) in [("legalName", &wallet.legal_name), ("lei", &wallet.lei)] {
        told.extend(claim.iter().map(|claim| (name.to_owned(), json!(claim))));
    }
    tell(&mut told, wallet.check_time(moment).and_then(|()| wallet.check_signature(domain)).err());
    Value::Object(told)
}

fn tell(told: &mut Map<String, Value>, problem: Option<Problem>) {
    told.extend(problem.map(|problem| ("problem".to_owned(), json!(problem.to_string()))));
}

/// The registry of the documents, and the time at which they have to hold.
struct ExpectedPlace {
    chain_id: u64,
    registry: Address,
    moment: Moment,
}

impl ExpectedPlace {
    fn read(place: &JsValue) -> Result<Self, Error> {
        let now = match member(place, "now") {
            None => js_sys::Date::now() / 1_000.0,
            Some(now) => now.as_f64().ok_or(invalid("now", "must be a number of seconds"))?,
        };
        let now = now as u64;
        Ok(Self {
            chain_id: chain_id(place)?.ok_or(invalid("chainId", NEEDED))?,
            registry: address(place, "registry")?.ok_or(invalid("registry", NEEDED))?,
            moment: Moment { now, block_time: now },
        })
    }
}

/// Reads the fields of a record that an acceptance pins, and the agent's scope.
fn record(agent: &JsValue) -> Result<(PinnedRecord, String), Error> {
    let wallet = |field| address(agent, field)?.ok_or(invalid(field, NEEDED));
    let text =
        |field: &'static str| member(agent, field).map(|value| text_of(&value)).ok_or(invalid(field, NEEDED));
    let registered_at = Timestamp::parse(&text("registeredAt")?);
    let record = PinnedRecord {
        agent_id: text("agentId")?.parse().map_err(|_| invalid("agentId", "must be a whole number"))?,
        creator: wallet("creator")?,
        agent_wallet: wallet("agentWallet")?,
        haftungsperson: wallet("haftungsperson")?,
        registered_at: registered_at.ok_or(invalid("registeredAt", "must be a time, ISO 8601"))?.seconds(),
    };
    Ok((record, text("operationalScope")?))
}
