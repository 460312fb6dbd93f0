//! The showcase registry's history: registrations, and what became of the agents.
//!
//! It gives every answer of the read API something to show. Ages are seconds before "now", oldest first;
//! `seed` turns each age into one block of that time.

pub const DAY: u64 = 86_400;
/// Age of the story's beginning in seconds; the chain's genesis has to be before it.
pub const BEGINS: u64 = 30 * DAY;
/// Name of the agent with more children than the lineage shows.
pub const BUSY: &str = "harbour";
pub const BUSY_CHILDREN: usize = 55;

/// One event of the history; a wallet's key is derived from its agent's name.
#[derive(Debug, Clone, Copy)]
pub enum StoryEvent {
    /// Registration under the wallet of the agent's own name: agent, operational scope, parent.
    Register(&'static str, &'static str, Option<&'static str>),
    /// Registration on a former agent's wallet: agent, operational scope, former agent.
    Inherit(&'static str, &'static str, &'static str),
    /// Registration of the fleet: [`BUSY_CHILDREN`] agents under [`BUSY`].
    Fleet,
    Attest(&'static str),
    /// Revenue report for the week before: agent, cents, currency, category.
    Report(&'static str, u64, &'static str, &'static str),
    Suspend(&'static str, &'static str),
    Revoke(&'static str, &'static str),
    Reactivate(&'static str),
    Terminate(&'static str),
}

use StoryEvent::{Attest, Fleet, Inherit, Reactivate, Register, Report, Revoke, Suspend, Terminate};

const fn root(agent: &'static str, scope: &'static str) -> StoryEvent {
    Register(agent, scope, None)
}

const fn child(agent: &'static str, parent: &'static str, scope: &'static str) -> StoryEvent {
    Register(agent, scope, Some(parent))
}

/// Scope of realistic length.
const LONG_SCOPE: &str = "Reads incoming invoices, matches each against purchase order and delivery note, \
    asks the supplier about differences above two per cent, books what matches, and proposes payment dates that \
    keep every discount. It may not: approve its own proposals; change bank details; pay suppliers that were added \
    in the last thirty days; split an invoice to stay below a limit. It hands over to a person: invoices without an \
    order; second reminders; anything a supplier calls a mistake; whatever it has seen fewer than five times. Its \
    log is kept for ten years and is open to the auditor, the data protection officer and the works council.";

pub const STORY: &[(u64, &[StoryEvent])] = &[
    (
        BEGINS,
        &[
            root("atlas", "Research: reads papers, writes summaries, buys nothing"),
            child("boreas", "atlas", "Gathers papers for atlas"),
            child("cirrus", "boreas", "Translates what boreas gathers"),
            child("dune", "cirrus", "Checks cirrus's terminology"),
            child("ember", "atlas", "Pays atlas's licence fees, up to 200 EUR a month"),
            root("forgetful", "Watches a car park; nobody has renewed its attestation in a month"),
            root("gone", "A campaign that is over"),
            root("impostor", "Claimed to be somebody's bank"),
            root("lost-key", "Its wallet was revoked and is somebody else's now"),
            root("ledger", LONG_SCOPE),
            root("kyoto", "税務申告の補助 — 東京・京都"),
            root("zurich", "Prüft Überweisungen über 1'000 CHF & mahnt säumige Schuldner 🧾"),
        ],
    ),
    (
        20 * DAY,
        &[
            root(BUSY, "Runs a harbour's berths, one agent each"),
            Fleet,
            root("alexandria", "مراجعة العقود وفهرستها"),
            root("quoted", "Says \"no\" \\ <b>often</b>\n\tand on two lines"),
            root("family", "A family's calendar 👩‍👩‍👧‍👦, e\u{301}crit de\u{301}compose\u{301}"),
            child("smuggler", BUSY, "Was found with somebody else's cargo"),
            root("paused", "Trades energy; suspended until its meter is repaired"),
            child("paused-child", "paused", "Registered before its parent was suspended"),
            root("second-chance", "Was suspended, and is back"),
            root("silent", ""),
            Report("atlas", 125_000, "EUR", "research"),
            Report("zurich", 2_000_000, "CHF", "dunning"),
        ],
    ),
    (
        10 * DAY,
        &[
            Attest("zurich"),
            Attest("second-chance"),
            Revoke("impostor", "phishing"),
            Revoke("smuggler", "contraband"),
            Revoke("lost-key", "key compromised"),
            Terminate("gone"),
            Suspend("second-chance", "complaint 17"),
            Suspend("paused", "meter broken"),
            Report("atlas", 98_050, "EUR", "research"),
            Report("kyoto", 480_000, "JPY", "tax"),
        ],
    ),
    // Attestations of this age are current for another hour.
    (7 * DAY - 3_600, &[Attest("ledger"), Attest("dune"), Reactivate("second-chance")]),
    (
        2 * DAY,
        &[
            Attest("atlas"),
            Attest("boreas"),
            Attest("kyoto"),
            Attest(BUSY),
            Attest("paused-child"),
            Inherit("heir", "Registered on a revoked agent's wallet", "lost-key"),
            Report("atlas", 101_999, "EUR", "licences"),
            Report("atlas", 4_200, "USD", "research"),
            Report(BUSY, 77_001_305, "USD", "mooring"),
            // A double cannot hold this exactly.
            Report("ledger", 9_007_199_254_740_993, "JPY", "bookkeeping"),
        ],
    ),
    (
        3_600,
        &[
            root("newcomer", "Arrived an hour ago"),
            child("apprentice", "newcomer", "Learns from newcomer"),
            Attest("second-chance"),
            Report("newcomer", 1, "EUR", "first-cent"),
        ],
    ),
];

/// Agents without ETH that the relayer registers: name, parent, scope. A third of all but the fleet.
pub const RELAYED: &[(&str, Option<&str>, &str)] = &[
    ("almoner", None, "Hands out a foundation's small grants; holds no money itself"),
    ("baker", None, "Invoicing for a small bakery 🥐"),
    ("carter", Some("baker"), "Plans the bakery's morning round"),
    ("diviner", Some("atlas"), "Guesses which paper atlas will want next"),
    ("exchequer", None, "Steuererklärungen für Vereine, ohne Gewähr"),
    ("falconer", None, "Flies inspection drones along power lines"),
    ("gleaner", Some("newcomer"), "Reads what newcomer leaves behind"),
    ("herald", None, "お知らせの翻訳と配信"),
    ("illuminator", None, "Describes pictures for people who cannot see them"),
    ("joiner", Some("kyoto"), "Puts kyoto's receipts in order"),
    ("keeper", None, "Waters a greenhouse, and asks before it buys seeds"),
    ("lamplighter", None, "Switches a town's lamps by the almanac"),
];
