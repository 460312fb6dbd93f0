//! The results of the checks before the start, as `check` prints them.

use alloy::primitives::Address;

/// The results of the checks.
pub type CheckReport = host_kit::CheckReport<12>;

/// The result of a check for one account.
pub(super) type AccountCheck = (Address, Result<String, String>);

/// Adds a line for each account, which names it if there are several. An account that fails is left out, with
/// a warning; if all fail, each is a cross.
pub(super) fn tell_accounts(report: &mut CheckReport, name: &'static str, found: &[AccountCheck]) {
    let all_fail = found.iter().all(|(_, found)| found.is_err());
    for (account, found_here) in found {
        let named = |text: &str| of_account(*account, found.len(), text);
        match found_here {
            Ok(text) => report.tick(name, named(text)),
            Err(text) if all_fail => report.cross(name, named(text)),
            Err(text) => report.warn(name, named(text)),
        }
    }
}

/// Returns a line's text, which names the account if there are several.
pub(super) fn of_account(account: Address, accounts: usize, text: &str) -> String {
    if accounts > 1 { format!("{account}: {text}") } else { text.to_owned() }
}
