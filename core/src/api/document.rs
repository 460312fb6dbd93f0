//! A successful answer: its JSON body, and the metadata that caches and clients need.

use std::io::{self, BufWriter, Write};

use alloy_primitives::{Keccak256, U256, hex};
use serde::Serialize;

use crate::{
    api::route::{FINAL_SECONDS, Route},
    eth::as_of::IndexedAt,
    eth::json,
    eth::timestamp::Timestamp,
    registry::agent_detail::AgentDetail,
    registry::ancestors::Ancestors,
    registry::changes::{ChangeList, Since},
    registry::compliance::{Compliance, ComplianceList},
    registry::history::AgentHistory,
    registry::kya::{Kya, KyaItem, KyaList},
    registry::liable::Liable,
    registry::lineage::LineageNode,
    registry::page::{AgentList, AgentPage},
    registry::revenue::{RevenueAggregate, RevenueHistory},
    registry::stats::{DetailedStats, Stats},
};

/// The version of the documents' format, for caches that outlive a deployment. It goes up with every change
/// to the document of an unchanged block.
pub const FORMAT: u32 = 1;

/// An answer of the read API, whole and ready to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The JSON text.
    pub body: String,
    /// A weak entity tag (RFC 9110 section 8.8.3), `W/` and quotes included. Answers have equal tags if they
    /// differ only in the time at which they were given, and in nothing that a client would decide by.
    pub etag: String,
    /// The moment at which the verdict in it lapses by time alone, if it can.
    pub valid_until: Option<Timestamp>,
    /// The block that a verdict rests on.
    pub block: Option<IndexedAt>,
    /// For one page of a list: the `Link` header (RFC 8288) to the others.
    pub links: Option<String>,
    /// True if the document is as of a block that the node calls final, so that it never changes.
    pub is_final: bool,
}

impl Document {
    /// Makes the document with this content that answers a route.
    pub(crate) fn of<T: Shape>(mut shape: T, route: &Route) -> Self {
        let DocumentMetadata { size_hint, clock_members, valid_until, block, links } = shape.about(route);
        let body = json::text(&shape, size_hint.max(128));
        let etag = match clock_members.is_empty() && shape.mask_clock_fields() {
            true => Tagger::tag(&shape),
            false => tag_without(&body, &clock_members),
        };
        Self { body, etag, valid_until, block, links, is_final: false }
    }

    /// Returns the number of seconds from `now` for which caches may keep the document: at most
    /// `time_to_live` and never into the second in which its verdict lapses; at least [`FINAL_SECONDS`] for a
    /// final document. A time to live of 0 stays 0.
    pub fn max_age(&self, time_to_live: u32, now: Timestamp) -> u32 {
        if self.is_final && time_to_live > 0 {
            return time_to_live.max(FINAL_SECONDS);
        }
        let Some(valid_until) = self.valid_until else { return time_to_live };
        let left = valid_until.seconds().saturating_sub(now.seconds_rounded_up());
        time_to_live.min(u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// Returns the seconds that are left of the `time_to_live` at `now`. The time of a verdict counts from
    /// its block's timestamp, so that a later change shows within it.
    pub fn time_left(&self, time_to_live: u32, now: Timestamp) -> u32 {
        let since =
            |block: IndexedAt| now.seconds_rounded_up().saturating_sub(block.block_timestamp.seconds());
        let age = self.block.map_or(0, since);
        time_to_live.saturating_sub(u32::try_from(age).unwrap_or(u32::MAX))
    }
}

/// Approximate bytes of a verdict's JSON.
const VERDICT_BYTES: usize = 900;

/// The metadata of a [`Document`], and hints for making it.
#[derive(Default)]
pub(crate) struct DocumentMetadata {
    /// Approximate bytes of the JSON, where they are many: a text that grows by doubling takes three times
    /// its size.
    pub(super) size_hint: usize,
    /// The members of the JSON that change with the clock alone, as [`member`] writes them, if they read the
    /// same everywhere in it. The entity tag is then made of the JSON without them, so nothing is serialized
    /// twice.
    pub(super) clock_members: Vec<String>,
    /// See [`Document::valid_until`].
    pub(super) valid_until: Option<Timestamp>,
    /// See [`Document::block`].
    pub(super) block: Option<IndexedAt>,
    /// See [`Document::links`].
    pub(super) links: Option<String>,
}

impl DocumentMetadata {
    /// Returns the metadata of a list from an index.
    fn indexed(size_hint: usize, as_of: &IndexedAt, links: Option<String>) -> Self {
        Self { size_hint, clock_members: vec![member("asOf", as_of)], links, ..Self::default() }
    }
}

/// The content of an answer.
pub(crate) trait Shape: Serialize {
    /// Returns the metadata of the document with this content that answers a route.
    fn about(&self, _: &Route) -> DocumentMetadata {
        DocumentMetadata::default()
    }

    /// Sets the fields that change with the clock alone to constants, for the entity tag. Returns false if
    /// there are none.
    fn mask_clock_fields(&mut self) -> bool {
        false
    }
}

impl Shape for Stats {}
impl Shape for DetailedStats {}
impl Shape for LineageNode {}
impl Shape for RevenueAggregate {}

impl Shape for AgentPage {
    fn about(&self, route: &Route) -> DocumentMetadata {
        DocumentMetadata {
            size_hint: 256 + self.data.len() * 160,
            links: route.links(self.total),
            ..DocumentMetadata::default()
        }
    }
}

impl Shape for RevenueHistory {
    fn about(&self, route: &Route) -> DocumentMetadata {
        DocumentMetadata { links: route.links(U256::from(self.total)), ..DocumentMetadata::default() }
    }
}

impl Shape for Kya {
    fn about(&self, _: &Route) -> DocumentMetadata {
        DocumentMetadata {
            size_hint: VERDICT_BYTES,
            clock_members: clock_members_of(self),
            valid_until: self.valid_until,
            block: Some(self.as_of.into()),
            links: None,
        }
    }
}

impl Shape for KyaList {
    fn about(&self, _: &Route) -> DocumentMetadata {
        let size_hint = 128 + self.data.len() * VERDICT_BYTES;
        DocumentMetadata {
            size_hint,
            clock_members: clock_members_of_all(&self.data),
            ..DocumentMetadata::default()
        }
    }
}

impl Shape for Ancestors {
    fn about(&self, _: &Route) -> DocumentMetadata {
        DocumentMetadata { clock_members: vec![member("asOf", &self.as_of)], ..DocumentMetadata::default() }
    }
}

impl Shape for AgentHistory {
    fn about(&self, _: &Route) -> DocumentMetadata {
        let Self { agent_id: id, limit, next, .. } = *self;
        let at = |cursor, relation| {
            format!("<{}>; rel=\"{relation}\"", Route::History { id, limit, cursor }.canonical())
        };
        let next = next.map(|next| format!(", {}", at(Some(next), "next")));
        let links = at(None, "first") + next.as_deref().unwrap_or_default();
        DocumentMetadata::indexed(256 + self.data.len() * 320, &self.as_of, Some(links))
    }
}

impl Shape for AgentList {
    fn about(&self, route: &Route) -> DocumentMetadata {
        DocumentMetadata::indexed(512 + self.data.len() * 512, &self.as_of, route.cursor_links(self.next))
    }
}

impl Shape for Liable {
    fn about(&self, route: &Route) -> DocumentMetadata {
        DocumentMetadata::indexed(512 + self.data.len() * 512, &self.as_of, route.cursor_links(self.next))
    }
}

impl Shape for ChangeList {
    fn about(&self, route: &Route) -> DocumentMetadata {
        let links = match *route {
            Route::Changes { limit, liable, .. } => {
                let next = Route::Changes { since: Since::Cursor(self.next), limit, liable };
                Some(format!("<{}>; rel=\"next\"", next.canonical()))
            }
            _ => None,
        };
        DocumentMetadata::indexed(256 + self.data.len() * 320, &self.as_of, links)
    }
}

impl Shape for AgentDetail {
    fn mask_clock_fields(&mut self) -> bool {
        self.compliance.mask_clock_fields();
        true
    }
}

impl Shape for ComplianceList {
    fn about(&self, route: &Route) -> DocumentMetadata {
        DocumentMetadata {
            size_hint: self.size_hint(),
            links: route.cursor_links(self.next),
            ..DocumentMetadata::default()
        }
    }

    fn mask_clock_fields(&mut self) -> bool {
        self.data.iter_mut().for_each(|item| item.compliance.mask_clock_fields());
        true
    }
}

impl Compliance {
    /// Masks the attestation's age: clients decide only by whether it is current.
    const fn mask_clock_fields(&mut self) {
        self.seconds_since_attestation = 0;
    }
}

/// Returns the weak entity tag of this text (RFC 9110 section 8.8.3), `W/` and quotes included. It is weak
/// because a proxy may compress the bytes.
pub fn entity_tag(text: &str) -> String {
    tag_without(text, &[])
}

/// Serializes a member of a JSON object, name included.
pub(super) fn member(name: &str, value: &impl Serialize) -> String {
    ["\"", name, "\":", &json::text(value, 128)].concat()
}

/// Returns the members of a verdict that change with the clock alone.
fn clock_members_of(kya: &Kya) -> Vec<String> {
    vec![member("checkedAt", &kya.checked_at), member("asOf", &kya.as_of)]
}

/// Returns the members that change with the clock alone in verdicts that were given together.
pub(super) fn clock_members_of_all(items: &[KyaItem]) -> Vec<String> {
    let verdict = |item: &KyaItem| match item {
        KyaItem::Verdict(kya) => Some(clock_members_of(kya)),
        KyaItem::Failed(_) => None,
    };
    items.iter().find_map(verdict).unwrap_or_default()
}

/// Returns the tag of a text without these members. No match is in a string: quotes are escaped there.
fn tag_without(text: &str, members: &[String]) -> String {
    fn hash(tagger: &mut Tagger, text: &str, members: &[String]) {
        let Some((member, others)) = members.split_first() else { return tagger.0.update(text) };
        // A search for the name is prepared sooner than one for the whole member.
        let name = member.split_inclusive(':').next().unwrap_or_default();
        let mut from = 0;
        for (at, _) in text.match_indices(name) {
            let is_member = text.get(at..).is_some_and(|rest| rest.starts_with(member));
            if let Some(part) = text.get(from..at).filter(|_| is_member) {
                hash(tagger, part, others);
                from = at + member.len();
            }
        }
        hash(tagger, text.get(from..).unwrap_or_default(), others);
    }
    let mut tagger = Tagger::default();
    hash(&mut tagger, text, members);
    tagger.finish()
}

/// A hasher of a text, piece by piece, to its tag.
#[derive(Default)]
struct Tagger(Keccak256);

impl Tagger {
    /// Returns the tag of the JSON of `shape`.
    fn tag(shape: &impl Serialize) -> String {
        // Each update of the hash has a cost of its own, whatever the number of bytes.
        let mut writer = BufWriter::with_capacity(8 * 1024, Self::default());
        let written = serde_json::to_writer(&mut writer, shape);
        let tagger = written.ok().and_then(|()| writer.into_inner().ok());
        tagger.map(Self::finish).unwrap_or_default()
    }

    fn finish(self) -> String {
        const LENGTH: usize = 8;
        let digest = self.0.finalize();
        let digest = digest.get(..LENGTH).map(hex::encode).unwrap_or_default();
        ["W/\"", &digest, "\""].concat()
    }
}

impl Write for Tagger {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eth::as_of::AsOf;
    use crate::registry::agent::{Agent, Status};
    use crate::registry::{agent_query::AgentQuery, changes, fixture::agent};
    use alloy_primitives::Address;

    const GRACE: u64 = 604_800;

    fn kya(attested: u64, status: Status, now: u64) -> Document {
        kya_at(AsOf::default(), attested, status, now)
    }

    fn kya_at(as_of: AsOf, attested: u64, status: Status, now: u64) -> Document {
        let last_attestation = Timestamp::from_seconds(attested);
        let agent = Agent { status, last_attestation, ..agent(1) };
        let (grace, now) = (U256::from(GRACE), Timestamp::from_seconds(now));
        Document::of(Kya::of(Address::ZERO, Some(agent), grace, now, as_of), &Route::Stats)
    }

    #[test]
    fn the_ttl_of_a_verdict_counts_from_its_block() {
        let block_timestamp = Timestamp::from_seconds(1_000);
        let verdict = kya_at(AsOf { block_timestamp, ..AsOf::default() }, 900, Status::Active, 1_010);
        for (now, left) in [(990_000, 60), (1_000_000, 60), (1_010_000, 50), (1_010_001, 49), (1_061_000, 0)]
        {
            assert_eq!(verdict.time_left(60, Timestamp::from_millis(now)), left, "{now}");
        }
        let other = Document::default();
        assert_eq!(other.time_left(300, Timestamp::from_seconds(9_999)), 300);
    }

    #[test]
    fn the_tag_of_a_verdict_changes_with_the_verdict_and_not_with_the_clock() {
        let first = kya(1_000, Status::Active, 1_500);
        let later = kya(1_000, Status::Active, 1_501);
        assert_ne!(first.body, later.body);
        assert_eq!(first.etag, later.etag);
        let next_block = AsOf { block_number: 9, ..AsOf::default() };
        let elsewhere = kya_at(next_block, 1_000, Status::Active, 1_500);
        assert!(elsewhere.body != first.body && elsewhere.etag == first.etag, "only the block is another");
        assert_ne!(first.etag, kya(1_000, Status::Suspended, 1_500).etag);
        assert_ne!(first.etag, kya(1_000, Status::Active, 1_001 + GRACE).etag, "the grace period is over");
        assert!(first.etag.starts_with("W/\"") && first.etag.ends_with('"') && first.etag.len() == 20);
    }

    #[test]
    fn the_tag_of_a_list_is_the_same_as_of_another_block_and_of_no_other_list() {
        fn tags<T: Shape>(list: impl Fn(u64, IndexedAt) -> T) {
            let at = |limit, block_number| {
                let seconds = Timestamp::from_seconds(block_number);
                Document::of(list(limit, IndexedAt { block_number, block_timestamp: seconds }), &Route::Stats)
            };
            let [first, later, other] = [at(1, 8), at(1, 9), at(2, 8)];
            assert!(first.body != later.body && first.etag == later.etag, "{} {}", first.body, later.body);
            assert_ne!(first.etag, other.etag, "{} {}", first.body, other.body);
        }
        let Ok(Route::Listing(query)) = Route::parse("/api/v1/agents?q=carbon") else { unreachable!() };
        tags(|limit, as_of| {
            let query = AgentQuery { limit, ..*query.clone() };
            AgentList::of(&query, (0, false), Vec::new(), None, as_of)
        });
        tags(|limit, as_of| Liable::none(Address::ZERO, limit, as_of));
        let next = changes::Cursor { began: 1, number: 1 };
        tags(|limit, as_of| ChangeList { limit, data: Vec::new(), next, has_more: false, as_of });
        tags(|number, IndexedAt { block_number, block_timestamp }| {
            let as_of = AsOf { block_number, block_timestamp, ..AsOf::default() };
            Ancestors { agent_id: number.into(), ancestors: Vec::new(), note: None, as_of }
        });
        tags(|limit, as_of| AgentHistory {
            agent_id: 1.into(),
            complete: true,
            incomplete_because: None,
            from_block: Some(1),
            limit,
            data: Vec::new(),
            next: None,
            as_of,
        });
    }

    #[test]
    fn a_compliant_verdict_ends_with_the_grace_period_and_the_others_last() {
        let lapse = 1_001 + GRACE;
        assert_eq!(kya(1_000, Status::Active, 1_500).valid_until, Some(Timestamp::from_seconds(lapse)));
        let at = |now| kya(1_000, Status::Active, now).body.contains("\"isCompliant\":true");
        assert!(at(lapse - 1) && !at(lapse), "it is the moment at which the verdict flips");
        assert_eq!(kya(1_000, Status::Active, lapse).valid_until, None);
        assert_eq!(kya(1_000, Status::Suspended, 1_500).valid_until, None);
        assert_eq!(kya(u64::MAX, Status::Active, 1_500).valid_until, None);
    }

    #[test]
    fn a_verdict_is_not_kept_beyond_its_end() {
        let lapse = 1_001 + GRACE;
        let max_age = |now: Timestamp| kya(1_000, Status::Active, now.seconds()).max_age(60, now);
        let lapse = lapse * 1_000;
        // After the lapse the verdict is another one, which stays.
        for (now, expected) in
            [(lapse - 61_000, 60), (lapse - 20_000, 20), (lapse - 19_999, 19), (lapse - 1, 0), (lapse, 60)]
        {
            assert_eq!(max_age(Timestamp::from_millis(now)), expected);
        }
    }
}
