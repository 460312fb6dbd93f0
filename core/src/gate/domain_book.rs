//! Statements of the files of a gate's domains about liable wallets, kept from one fetch to the next.
//!
//! ```text
//!   unread --file--> known --file--> known: a wallet that it lost no longer counts, a new one after a delay
//!     ^               |  ^
//!     |            failed |  the last file counts for a day, and overrules for as long as there is no other
//!     +--gone, failed-+--+
//! ```
//!
//! A file that is gone (404, 410) takes all its wallets with it. The domain stays known: wallets of a file
//! that comes back are new. Withdrawn acceptances and disowned agents of a wallet stay so until a file that
//! binds the wallet again says otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use alloy_primitives::{Address, B256, U256};

use super::{
    policy::AgentPolicy,
    verdict::{DomainWord, VerdictAgent},
};
use crate::{
    eth::timestamp::Timestamp,
    liability::{Acceptance, DomainFile, DomainName, LiableWallet, Moment},
};

/// The most wallets of a domain with remembered withdrawals and disowned agents: those that its file binds,
/// and the last ones that it bound before.
const MOST_WALLETS: usize = 1_024;

/// Seconds for which the last good file counts while no other can be fetched.
const KEPT_SECONDS: u64 = 86_400;

/// The domains of a gate with their last files.
#[derive(Clone, Debug, Default)]
pub struct DomainBook {
    domains: BTreeMap<DomainName, Arc<KnownDomain>>,
}

/// The result of fetching a domain's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchOutcome {
    /// A file, and those of its wallets that have signed for the domain, as the host has verified.
    File(DomainFile, Vec<LiableWallet>),
    /// The domain says that it has none.
    Gone,
    /// Neither is known: transport, TLS, a failure of the server, or a file that cannot be read.
    Failed(String),
}

#[derive(Clone, Debug, Default)]
struct KnownDomain {
    /// A file was read before.
    is_known: bool,
    file: Option<KnownFile>,
    /// Withdrawals and disowned agents of the wallets that the file binds, and of those bound before.
    against: BTreeMap<Address, AgentExclusions>,
}

/// The withdrawn acceptances and disowned agents of a wallet, by one domain.
#[derive(Clone, Debug, Default)]
struct AgentExclusions {
    /// Unix seconds of the last file that bound the wallet.
    bound_at: u64,
    withdrawn: Arc<BTreeSet<B256>>,
    not_ours: Arc<BTreeSet<U256>>,
}

#[derive(Clone, Debug)]
struct KnownFile {
    read_at: u64,
    wallets: BTreeMap<Address, BoundWallet>,
    acceptances: BTreeMap<U256, Vec<Acceptance>>,
}

#[derive(Clone, Debug)]
struct BoundWallet {
    entries: Vec<LiableWallet>,
    counts_from: u64,
}

/// The wallets of a domain at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DomainState {
    /// The wallets that count.
    pub counted: Vec<Address>,
    /// The wallets that are new and do not count yet, and those with a signature that does not hold now.
    pub waiting: Vec<Address>,
}

impl DomainBook {
    /// Starts a book of these domains, without any file.
    pub fn new(domains: impl IntoIterator<Item = DomainName>) -> Self {
        Self { domains: domains.into_iter().map(|domain| (domain, Arc::default())).collect() }
    }

    /// Returns the domains.
    pub fn names(&self) -> impl Iterator<Item = &DomainName> {
        self.domains.keys()
    }

    /// Updates a domain by the result of a fetch. Returns the wallets that are new at a known domain: they
    /// count after `delay_seconds`.
    pub fn update(
        &mut self,
        domain: &DomainName,
        fetched: FetchOutcome,
        delay_seconds: u64,
        now: Timestamp,
    ) -> Vec<Address> {
        let Some(known) = self.domains.get_mut(domain) else { return Vec::new() };
        let (known, now) = (Arc::make_mut(known), now.seconds());
        let (file, bound) = match fetched {
            FetchOutcome::Failed(_) => return Vec::new(),
            FetchOutcome::Gone => {
                known.file = None;
                return Vec::new();
            }
            FetchOutcome::File(file, bound) => (file, bound),
        };
        let before = known.file.take();
        let mut wallets: BTreeMap<Address, BoundWallet> = BTreeMap::new();
        let mut new = Vec::new();
        for entry in bound {
            let bound = wallets.entry(entry.wallet).or_insert_with(|| {
                let since = before.as_ref().and_then(|before| before.wallets.get(&entry.wallet));
                let counts_from = match since {
                    Some(since) => since.counts_from,
                    None if known.is_known => {
                        new.push(entry.wallet);
                        now.saturating_add(delay_seconds)
                    }
                    None => 0,
                };
                BoundWallet { entries: Vec::new(), counts_from }
            });
            bound.entries.push(entry);
        }
        let mut acceptances: BTreeMap<U256, Vec<Acceptance>> = BTreeMap::new();
        for acceptance in file.acceptances {
            acceptances.entry(acceptance.agent_id.0).or_default().push(acceptance);
        }
        known.is_known = true;
        known.note_against(wallets.keys(), Arc::new(file.withdrawn), Arc::new(file.not_ours), now);
        known.file = Some(KnownFile { read_at: now, wallets, acceptances });
        new
    }

    /// Returns the word of the files on an agent under a policy, and their acceptances of it that hold now,
    /// the one that lasts longest last.
    pub fn word(
        &self,
        policy: &AgentPolicy,
        agent: &VerdictAgent,
        now: Timestamp,
    ) -> (DomainWord, Vec<Acceptance>) {
        let (now, id) = (now.seconds(), agent.id.parse().unwrap_or(U256::MAX));
        if self.against(agent.liable).any(|against| against.not_ours.contains(&id)) {
            return (DomainWord::Disowned, Vec::new());
        }
        let mut domains = policy.domains.iter().filter_map(|name| self.domains.get(name)?.file.as_ref());
        let is_named = domains.any(|file| file.counts(agent.liable, now));
        let is_of_record = |acceptance: &&Acceptance| {
            acceptance.haftungsperson == agent.liable
                && acceptance.creator == agent.creator
                && acceptance.check_time(Moment { now, block_time: now }).is_ok()
        };
        let files = self.domains.values().filter_map(|known| known.file.as_ref());
        let files = files.filter(|file| file.is_fresh(now) && file.wallets.contains_key(&agent.liable));
        let listed = files.flat_map(|file| file.acceptances.get(&id).into_iter().flatten());
        let mut listed: Vec<Acceptance> = listed.filter(is_of_record).cloned().collect();
        listed.sort_by_key(|acceptance| acceptance.not_after);
        (if is_named { DomainWord::Named } else { DomainWord::Silent }, listed)
    }

    /// Returns whether a domain of this liable wallet has withdrawn the acceptance with this digest.
    pub fn has_withdrawn(&self, liable: Address, digest: B256) -> bool {
        self.against(liable).any(|against| against.withdrawn.contains(&digest))
    }

    /// Returns a domain's wallets at this time; `None` where no file counts.
    pub fn state(&self, domain: &DomainName, now: Timestamp) -> Option<DomainState> {
        let now = now.seconds();
        let file = self.domains.get(domain)?.file.as_ref().filter(|file| file.is_fresh(now))?;
        let (counted, waiting) = file.wallets.keys().copied().partition(|wallet| file.counts(*wallet, now));
        Some(DomainState { counted, waiting })
    }

    /// Returns the domains' withdrawals and disowned agents of this wallet, of any age.
    fn against(&self, wallet: Address) -> impl Iterator<Item = &AgentExclusions> {
        self.domains.values().filter_map(move |known| known.against.get(&wallet))
    }
}

impl KnownDomain {
    /// Stores a file's withdrawals and disowned agents: in place of the former ones for the wallets that it
    /// binds, beside them for those that were bound before.
    fn note_against<'a>(
        &mut self,
        bound: impl Iterator<Item = &'a Address>,
        withdrawn: Arc<BTreeSet<B256>>,
        not_ours: Arc<BTreeSet<U256>>,
        now: u64,
    ) {
        let said = AgentExclusions { bound_at: now, withdrawn, not_ours };
        let bound: BTreeMap<Address, AgentExclusions> = bound.map(|wallet| (*wallet, said.clone())).collect();
        for (_, before) in self.against.iter_mut().filter(|(wallet, _)| !bound.contains_key(*wallet)) {
            add(&mut before.withdrawn, &said.withdrawn);
            add(&mut before.not_ours, &said.not_ours);
        }
        self.against.extend(bound);
        while self.against.len() > MOST_WALLETS {
            let oldest = self.against.iter().min_by_key(|(_, against)| against.bound_at);
            let Some(oldest) = oldest.map(|(wallet, _)| *wallet) else { return };
            self.against.remove(&oldest);
        }
    }
}

/// Adds entries to a set, unless it would become too large to keep.
fn add<T: Copy + Ord>(set: &mut Arc<BTreeSet<T>>, more: &BTreeSet<T>) {
    const MOST: usize = 16_384;
    if set.len() + more.len() <= MOST && !more.is_subset(set) {
        Arc::make_mut(set).extend(more);
    }
}

impl KnownFile {
    fn is_fresh(&self, now: u64) -> bool {
        now.saturating_sub(self.read_at) <= KEPT_SECONDS
    }

    fn counts(&self, wallet: Address, now: u64) -> bool {
        let holds = |entry: &LiableWallet| entry.check_time(Moment { now, block_time: now }).is_ok();
        let bound = self.wallets.get(&wallet);
        self.is_fresh(now)
            && bound.is_some_and(|bound| now >= bound.counts_from && bound.entries.iter().any(holds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liability::{DecimalId, PinnedRecord, fixture};
    use alloy_primitives::Bytes;

    const ACME: Address = Address::repeat_byte(1);
    const OTHER: Address = Address::repeat_byte(2);
    const CREATOR: Address = Address::repeat_byte(3);
    const DAY: u64 = 86_400;
    const NOW: u64 = 1_790_000_000;

    fn name(text: &str) -> DomainName {
        DomainName::parse(text).unwrap()
    }

    fn entry(wallet: Address) -> LiableWallet {
        LiableWallet {
            chain_id: 1,
            registry: Address::ZERO,
            wallet,
            not_before: NOW,
            not_after: NOW + 30 * DAY,
            signature: Bytes::new(),
            legal_name: None,
            lei: None,
        }
    }

    fn file(wallets: &[Address]) -> FetchOutcome {
        FetchOutcome::File(DomainFile::default(), wallets.iter().copied().map(entry).collect())
    }

    fn agent(liable: Address) -> VerdictAgent {
        let (agent_id, agent_wallet, haftungsperson) = (U256::from(7), Address::ZERO, liable);
        let record =
            PinnedRecord { agent_id, creator: CREATOR, agent_wallet, haftungsperson, registered_at: 1 };
        VerdictAgent::new(record, "", None).unwrap()
    }

    /// Returns the book of one domain after these fetches, each at its second.
    fn book(fetches: impl IntoIterator<Item = (u64, FetchOutcome)>) -> DomainBook {
        let mut book = DomainBook::new([name("acme.example")]);
        for (at, fetched) in fetches {
            book.update(&name("acme.example"), fetched, DAY, Timestamp::from_seconds(at));
        }
        book
    }

    fn word(book: &DomainBook, wallet: Address, now: u64) -> DomainWord {
        let policy = AgentPolicy { domains: vec![name("acme.example")], ..AgentPolicy::default() };
        book.word(&policy, &agent(wallet), Timestamp::from_seconds(now)).0
    }

    #[test]
    fn a_wallet_counts_from_its_domains_first_file_and_a_new_one_a_day_later() {
        let failed = || FetchOutcome::Failed("status 500".to_owned());
        let (a, ab, b) = (|| file(&[ACME]), || file(&[ACME, OTHER]), || file(&[OTHER]));
        let (named, silent) = (DomainWord::Named, DomainWord::Silent);
        for (fetches, wallet, now, expected) in [
            (vec![], ACME, NOW, silent),
            (vec![(NOW, failed())], ACME, NOW, silent),
            (vec![(NOW, ab())], OTHER, NOW, named),
            // New in a known file.
            (vec![(NOW, a()), (NOW + 1, ab())], OTHER, NOW + DAY, silent),
            (vec![(NOW, a()), (NOW + 1, ab()), (NOW + 9, ab())], OTHER, NOW + DAY + 1, named),
            (vec![(NOW, a()), (NOW + 1, ab())], ACME, NOW + 1, named),
            // Lost at once, by a file without it and by none; what comes back is new.
            (vec![(NOW, a()), (NOW + 1, b())], ACME, NOW + 1, silent),
            (vec![(NOW, a()), (NOW + 1, FetchOutcome::Gone)], ACME, NOW + 1, silent),
            (vec![(NOW, a()), (NOW + 1, FetchOutcome::Gone), (NOW + 2, a())], ACME, NOW + 2, silent),
            (vec![(NOW, a()), (NOW + 1, b()), (NOW + 2, ab())], ACME, NOW + 2, silent),
            // A failure keeps the last file for a day.
            (vec![(NOW, a()), (NOW + 1, failed())], ACME, NOW + DAY, named),
            (vec![(NOW, a()), (NOW + 1, failed())], ACME, NOW + DAY + 1, silent),
            // The wallet's signature for the domain ends.
            (vec![(NOW, a()), (NOW + 30 * DAY, a())], ACME, NOW + 30 * DAY, named),
            (vec![(NOW, a()), (NOW + 30 * DAY, a())], ACME, NOW + 30 * DAY + 1, silent),
        ] {
            assert_eq!(word(&book(fetches.clone()), wallet, now), expected, "{fetches:?} {wallet} {now}");
        }
        let mut known = book([(NOW, a())]);
        let new = known.update(&name("acme.example"), ab(), DAY, Timestamp::from_seconds(NOW));
        let state = known.state(&name("acme.example"), Timestamp::from_seconds(NOW));
        let expected = DomainState { counted: vec![ACME], waiting: vec![OTHER] };
        assert_eq!((new, state), (vec![OTHER], Some(expected)));
    }

    #[test]
    fn what_a_domain_disowns_or_withdraws_is_overruled_by_it_for_its_own_wallets_alone() {
        let digest = B256::repeat_byte(5);
        let (withdrawn, not_ours) = ([digest].into(), [U256::from(7)].into());
        let said = DomainFile { withdrawn, not_ours, ..DomainFile::default() };
        let failed = FetchOutcome::Failed(String::new());
        let book = book([(NOW, FetchOutcome::File(said, vec![entry(ACME)])), (NOW + 1, failed)]);
        // A file that no longer counts disowns as well.
        for now in [NOW, NOW + 2 * DAY] {
            assert_eq!(word(&book, ACME, now), DomainWord::Disowned, "{now}");
            assert_eq!(word(&book, OTHER, now), DomainWord::Silent, "{now}");
        }
        assert!(book.has_withdrawn(ACME, digest) && !book.has_withdrawn(ACME, B256::ZERO));
        assert!(!book.has_withdrawn(OTHER, digest), "it is another person's");
    }

    #[test]
    fn what_a_domain_has_closed_is_opened_by_no_loss_of_the_wallet() {
        let digest = |number| B256::repeat_byte(number);
        let said = |digests: &[u8], agents: &[u64]| DomainFile {
            withdrawn: digests.iter().map(|number| digest(*number)).collect(),
            not_ours: agents.iter().copied().map(U256::from).collect(),
            ..DomainFile::default()
        };
        let first = || (NOW, FetchOutcome::File(said(&[5], &[7]), vec![entry(ACME)]));
        for (next, disowned, withdrawn) in [
            (FetchOutcome::Gone, true, [true, false]),
            (FetchOutcome::File(said(&[], &[]), vec![]), true, [true, false]),
            (FetchOutcome::File(said(&[6], &[]), vec![]), true, [true, true]),
            (FetchOutcome::File(said(&[6], &[]), vec![entry(OTHER)]), true, [true, true]),
            // Bound again, it is the domain's to say.
            (FetchOutcome::File(said(&[6], &[8]), vec![entry(ACME)]), false, [false, true]),
        ] {
            let book = book([first(), (NOW + 1, next.clone())]);
            assert_eq!(word(&book, ACME, NOW + 2) == DomainWord::Disowned, disowned, "{next:?}");
            assert_eq!([5, 6].map(|number| book.has_withdrawn(ACME, digest(number))), withdrawn, "{next:?}");
        }
    }

    #[test]
    fn two_domains_of_one_wallet_serve_it_each_under_its_own_policy() {
        let mut book = DomainBook::new([name("acme.example"), name("acme.test")]);
        let at = Timestamp::from_seconds;
        let serves = |book: &DomainBook, domain: &str| {
            let policy = AgentPolicy { domains: vec![name(domain)], ..AgentPolicy::default() };
            book.word(&policy, &agent(ACME), at(NOW)).0
        };
        book.update(&name("acme.example"), file(&[ACME]), DAY, at(NOW));
        book.update(&name("acme.test"), file(&[ACME]), DAY, at(NOW));
        let [named, silent] = [DomainWord::Named, DomainWord::Silent];
        assert_eq!((serves(&book, "acme.example"), serves(&book, "acme.test")), (named, named));
        book.update(&name("acme.example"), file(&[OTHER]), DAY, at(NOW));
        assert_eq!((serves(&book, "acme.example"), serves(&book, "acme.test")), (silent, named));
        // An agent that one domain disowns is disowned under the policies of both.
        let said = DomainFile { not_ours: [U256::from(7)].into(), ..DomainFile::default() };
        book.update(&name("acme.test"), FetchOutcome::File(said, vec![entry(ACME)]), DAY, at(NOW));
        assert_eq!(serves(&book, "acme.example"), DomainWord::Disowned);
    }

    #[test]
    fn the_acceptances_of_a_file_are_given_and_the_one_that_lasts_longest_is_tried_first() {
        let acceptance = |agent: u64, liable, not_after| {
            fixture::acceptance((1, Address::ZERO), NOW, |a| {
                (a.agent_id, a.not_after) = (DecimalId(U256::from(agent)), not_after);
                (a.creator, a.haftungsperson) = (CREATOR, liable);
            })
        };
        let of = |acceptances| {
            let said = DomainFile { acceptances, ..DomainFile::default() };
            book([(NOW, FetchOutcome::File(said, vec![entry(ACME)]))])
        };
        let listed = |book: &DomainBook, wallet, now| {
            let (_, listed) =
                book.word(&AgentPolicy::default(), &agent(wallet), Timestamp::from_seconds(now));
            listed.iter().map(|listed| listed.not_after - NOW).collect::<Vec<_>>()
        };
        let soon = of(vec![
            acceptance(7, ACME, NOW + 1),
            acceptance(7, ACME, NOW + 5),
            acceptance(8, ACME, NOW + 9),
        ]);
        assert_eq!(listed(&soon, ACME, NOW), [1, 5]);
        assert_eq!((listed(&soon, ACME, NOW + 6), listed(&soon, OTHER, NOW)), (vec![], vec![]));
        // Acceptances count only while the file does, and only of the wallets that it binds.
        let lasting = of([ACME, OTHER].map(|liable| acceptance(7, liable, NOW + 2 * DAY)).to_vec());
        assert_eq!(listed(&lasting, ACME, NOW + DAY), [2 * DAY]);
        assert_eq!((listed(&lasting, ACME, NOW + DAY + 1), listed(&lasting, OTHER, NOW)), (vec![], vec![]));
    }
}
