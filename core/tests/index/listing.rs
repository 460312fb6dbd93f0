//! Filtered and sorted pages of agents, compared with plain filters over the registry's records.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use registry_core::index::Bounds;

use crate::{TestIndex, common::prelude::*, history::ChainHistory, liability, liable::item};

/// Searched texts with their words; the last word may be a prefix.
const SEARCHES: [(&str, &[&str]); 17] = [
    ("carbon", &["carbon"]),
    ("  Carbon+RIGHTS ", &["carbon", "rights"]),
    ("rights carbon", &["rights", "carbon"]),
    ("car", &["car"]),
    ("car rights", &["car", "rights"]),
    ("c", &["c"]),
    ("VertRÄg", &["verträg"]),
    ("übersetzt verträge", &["übersetzt", "verträge"]),
    ("NOT", &["not"]),
    ("quoted\" OR", &["quoted", "or"]),
    ("scope:x", &["scope", "x"]),
    ("NEAR(text", &["near", "text"]),
    ("text*", &["text"]),
    ("研究", &["研究"]),
    ("more", &["more"]),
    ("nobody", &["nobody"]),
    ("’ — …", &[]),
];

type Filter<'a> = &'a dyn Fn(&AgentRecord) -> bool;

/// Returns whether a scope has the words, the last of them as a prefix.
fn has_words(scope: &str, words: &[&str]) -> bool {
    let plain = scope.to_lowercase();
    let of_scope: Vec<&str> = plain.split(|letter: char| !letter.is_alphanumeric()).collect();
    let Some((last, whole)) = words.split_last() else { return false };
    whole.iter().all(|word| of_scope.contains(word)) && of_scope.iter().any(|word| word.starts_with(last))
}

#[test]
fn pages_laid_end_to_end_are_what_a_plain_filter_finds_in_lists_of_one_row_and_of_several() {
    pages_are_like_a_filter(120, 100);
    pages_are_like_a_filter(900, 40);
}

fn pages_are_like_a_filter(agents: u64, rounds: u64) {
    let (index, mut random) = (TestIndex::filled(agents, 0), Random(8));
    let newest = index.newest();
    let (registry, grace) = (&newest.registry, newest.registry.grace_seconds.unwrap());
    for round in 0..rounds {
        let now = newest.seconds + random.below(900_000);
        let mut agents: Vec<&AgentRecord> = registry.agents.iter().collect();
        let example = agents[random.place(registry.agents.len())].clone();
        let AgentRecord { haftungsperson, creator, parentAgentId, generation, .. } = example;
        let (status, compliant) = (random.below(4) as u8, random.once_in(2));
        let (text, words) = random.pick(&SEARCHES);
        let text = utf8_percent_encode(text, NON_ALPHANUMERIC);
        // Each filter is used once in the given number of times.
        let filters: [(u64, String, Filter<'_>); 6] = [
            (3, format!("haftungsperson={haftungsperson}"), &|it| it.haftungsperson == haftungsperson),
            (3, format!("creator={creator}"), &|it| it.creator == creator),
            (4, format!("parent={parentAgentId}"), &|it| it.parentAgentId == parentAgentId),
            (3, format!("status={}", STATUSES[usize::from(status)]), &|it| it.status == status),
            (3, format!("compliant={compliant}"), &|it| is_compliant(it, grace, now) == compliant),
            (3, format!("q={text}"), &|it| has_words(&it.operationalScope, words)),
        ];
        let mut query = String::new();
        for (times, parameter, is_asked) in filters {
            if random.once_in(times) {
                query += &format!("&{parameter}");
                agents.retain(|agent| is_asked(agent));
            }
        }
        let sort = random.pick(&["id", "-id", "registration", "attestation", "-attestation"]);
        // A status alone, in the order of ids, is answered as a scan answers it.
        let is_plain =
            query.split('&').all(|parameter| parameter.is_empty() || parameter.starts_with("status"));
        if random.once_in(4) || (is_plain && ["id", "registration"].contains(&sort)) {
            query += &format!("&generation={generation}");
            agents.retain(|agent| agent.generation == generation);
        }
        agents.sort_by_key(|agent| match sort.trim_start_matches('-') {
            "attestation" => (agent.lastAttestation, agent.agentId),
            _ => (0, agent.agentId),
        });
        if sort.starts_with('-') {
            agents.reverse();
        }
        let limit = 1 + random.below(30);
        let bounds = random.pick(&[Bounds::DEFAULT, Bounds { counted: 9, candidates: 7, searched: 3 }]);
        let expected: Vec<Value> = agents.into_iter().map(|agent| item(agent, grace, now)).collect();
        let first = format!("/api/v1/agents?limit={limit}&sort={sort}{query}");
        let page = |target: &str| index.ask(target, now);
        let number = 1 + random.below(4);
        let numbered = format!("{first}&page={number}");
        let (mut document, links) = page(&numbered);
        liability::take(&mut document);
        let links = links.unwrap();
        let skipped = usize::try_from((number - 1) * limit).unwrap().min(expected.len());
        let end = expected.len().min(skipped + usize::try_from(limit).unwrap());
        assert_eq!(document["data"], json!(expected[skipped..end]), "round {round}: {numbered}");
        assert_eq!(document["total"], expected.len(), "round {round}: {numbered}");
        let target_of = |relation: &str| {
            let link = links.split(", ").find(|link| link.ends_with(&format!("rel=\"{relation}\"")))?;
            link.split(['<', '>']).nth(1)
        };
        let relations = ["first", "prev", "next"].map(|relation| target_of(relation).is_some());
        assert_eq!(relations, [true, number > 1, end < expected.len()], "{numbered}: {links}");
        if let Some(previous) = target_of("prev") {
            assert_eq!(page(previous).0["page"], json!(number - 1), "{numbered}: {links}");
        }
        let mut found = Vec::new();
        for mut page in index.pages(&first, now, bounds) {
            liability::take(&mut page);
            let data = page["data"].as_array().unwrap();
            assert!(data.len() as u64 <= limit, "{first}");
            if let Some(total) = page["total"].as_u64() {
                let is_bound = page["totalIsLowerBound"] == true;
                let all = expected.len() as u64;
                let holds = if is_bound { total <= all } else { total == all };
                assert!(holds, "round {round}: {first}: {page}\nof {all}");
            }
            found.extend(data.iter().cloned());
        }
        assert_eq!(found, expected, "round {round}: {first}");
    }
}

#[test]
fn an_agent_whose_record_cannot_be_read_is_in_no_list_and_named_by_each() {
    let history = ChainHistory::new(40, &mut Random(7));
    let mut registry = (*history.newest().registry).clone();
    let unreadable = registry.agents[6].clone();
    registry.agents[6].status = 255;
    // Lists are made of all agents at once after a fill of several slices.
    let mut in_slices = TestIndex::new(ChainHistory::of(2, registry.clone()), 10, 200);
    in_slices.catch_up().unwrap();
    let AgentRecord { haftungsperson, creator, parentAgentId, generation, .. } = unreadable;
    let filters = format!(
        "haftungsperson={haftungsperson} creator={creator} parent={parentAgentId} generation={generation} generation=0 \
         compliant=true compliant=false compliant=true&status=Revoked sort=-id sort=attestation"
    );
    let both = [TestIndex::of(registry), in_slices];
    for (filter, index) in filters.split(' ').flat_map(|filter| both.iter().map(move |index| (filter, index)))
    {
        let (list, _) = index.ask(&format!("/api/v1/agents?limit=100&{filter}"), NOW);
        let ids = ids_in(&list["data"]);
        assert_eq!((&list["total"], &list["unreadable"]), (&json!(ids.len()), &json!([7])), "{filter}");
        assert!(!ids.contains(&7), "{filter}: {list}");
    }
}
