//! Answers from the chain: from the data centre's cache, or else from RPC endpoints. A wallet's past comes
//! from the index's excerpt, or from a scan.

use core::pin::pin;
use std::{cell::RefCell, rc::Rc};

use edge_shared::unix_millis;
use futures_util::{
    FutureExt as _,
    future::{Either, select},
};
use registry_core::{
    api::acceptance::WithCodeOf,
    api::document::Document,
    api::error::Error,
    api::question::{LateExcerpt, Question, WithEvidence},
    api::route::{FINAL_SECONDS, Route},
    api::scan::Scan,
    chain::QueryError,
    eth::as_of::BlockId,
    eth::timestamp::Timestamp,
    host::newest_block::NewestBlock,
    registry::error_code::Code,
};

use super::{
    colo, excerpts,
    scans::{self, ScanRead},
    signers,
    single_flight::{ReadInProgress, share},
};
use crate::{http::Content, log::Record};

thread_local! {
    static NEWEST: RefCell<NewestBlock> = RefCell::default();
}

/// Reads the answer of a route, from the data centre's cache or the chain.
pub(super) async fn from_chain(route: &Route, reading: &ReadInProgress) -> Result<Rc<Content>, Error> {
    let settings = reading.settings();
    let now = Timestamp::from_millis(unix_millis());
    if let Some(block @ BlockId::Number(number)) = route.block()
        && !NEWEST.with_borrow(|newest| newest.may_have(number, now))
    {
        return Err(QueryError::BlockNotAvailable(block).into());
    }
    let time_to_live = settings.time_to_live(route.cache_scope());
    let colo_key = (time_to_live > 0).then(|| colo::key(&reading.context, route));
    if let Some(colo_key) = &colo_key {
        // An answer as of a final block outlives the setting.
        let is_pinned = route.block().is_some();
        let longest = if is_pinned { time_to_live.max(FINAL_SECONDS) } else { time_to_live };
        // A renewal uses an entry only if another instance has renewed it already.
        let is_usable = |content: &Content| !(reading.is_renewal && content.is_due_for_renewal(now));
        if let Some(content) = colo::find(colo_key, longest, now).await.filter(is_usable) {
            return Ok(Rc::new(of_chain(content, route)));
        }
    }
    let document = match route.is_about_wallets() || matches!(route, Route::Evidence(_)) {
        true => verdict(route, reading, now).boxed_local().await?,
        false => ask(question(route, reading, now), reading).await?,
    };
    // An older block says nothing about the newest one.
    if let (Some(block), None) = (document.block, route.block()) {
        NEWEST.with_borrow_mut(|newest| newest.see(block.block_number, now));
    }
    let time_to_live = time_left(&document, route, reading, now);
    let content = Rc::new(of_chain(Content::of(document, time_to_live, now), route));
    if let Some(colo_key) = colo_key
        && content.max_age > 0
    {
        let entry = content.clone();
        reading.context.runtime.wait_until(async move { colo::store(colo_key, &entry).await });
    }
    Ok(content)
}

/// Returns the seconds left of a document's TTL. A verdict at a given block stays the same, and where
/// blocks may be of any age there is no freshness.
fn time_left(document: &Document, route: &Route, reading: &ReadInProgress, now: Timestamp) -> u32 {
    let settings = reading.settings();
    let time_to_live = settings.time_to_live(route.cache_scope());
    match route.block() {
        None if settings.max_head_age_seconds > 0 => document.time_left(time_to_live, now),
        _ => time_to_live,
    }
}

/// Marks verdicts as the chain's.
fn of_chain(content: Content, route: &Route) -> Content {
    let content = if route.is_about_wallets() { content.with_source("chain") } else { content };
    content.with_forms_of(route)
}

/// Reads a verdict. A wallet's past comes from the index, or else from a scan: from the one that is in
/// memory, or with `history=1` from one that all requests for a past share.
async fn verdict(route: &Route, reading: &ReadInProgress, now: Timestamp) -> Result<Document, Error> {
    let context = &reading.context;
    let late = match (&context.index, route.block()) {
        (Some(_), None) => Some(LateExcerpt::default()),
        _ => None,
    };
    let mut asked = question(route, reading, now);
    asked.question.excerpt.clone_from(&late);
    let arriving = async {
        if let Some(late) = &late {
            excerpts::arrive(context, route, late, &reading.record).await;
        }
    };
    if let Route::Kya { history: true, .. } = route {
        arriving.await;
        if late.as_ref().is_none_or(|late| !late.has_arrived()) {
            asked.question.scan = scan_for_history(reading).boxed_local().await?;
        }
        return ask(asked, reading).await;
    }
    asked.question.scan = scans::in_memory();
    // The excerpt is polled first: one in memory is ready before the chain is asked.
    match select(pin!(arriving), pin!(ask(asked, reading))).await {
        Either::Left(((), asking)) => asking.await,
        Either::Right((document, _)) => document,
    }
}

/// Returns the scan that all requests for a wallet's past share. A registry too large for one is no error:
/// the verdict says that the past is unknown.
async fn scan_for_history(reading: &ReadInProgress) -> Result<Option<Scan>, Error> {
    let mut record = Record { rpc_calls: 0, ..reading.record.clone() };
    let scan = share(&reading.context, ScanRead, &mut record).await;
    reading.count(record.rpc_calls);
    match scan {
        Ok(kept) => Ok(Some(kept.scan.clone())),
        Err(error) if error.code() == Code::TooLarge => Ok(None),
        Err(error) => Err(error),
    }
}

async fn ask(asked: WithEvidence, reading: &ReadInProgress) -> Result<Document, Error> {
    let (now, reply_bytes) = (asked.question.now, asked.question.route.reply_bytes());
    let Some(account) = signers::unread(&reading.context) else {
        return reading.ask(asked, now, reply_bytes).await;
    };
    let route = asked.question.route.clone();
    let query = WithCodeOf { query: asked, account };
    let (document, has_code) = reading.ask(query, now, reply_bytes).boxed_local().await?;
    if let Some(has_code) = has_code {
        let millis = u64::from(time_left(&document, &route, reading, now)) * 1_000;
        signers::keep(account, has_code, now.as_millis().saturating_add(millis));
    }
    Ok(document)
}

/// Returns the question of a route, without sources of a wallet's past.
fn question(route: &Route, reading: &ReadInProgress, now: Timestamp) -> WithEvidence {
    let settings = reading.settings();
    let (registry, chain) = (settings.registry, settings.public_rpc.clone());
    let question = Question { route: route.clone(), registry, chain, now, scan: None, excerpt: None };
    WithEvidence { question, layout: settings.layout, block: None }
}
