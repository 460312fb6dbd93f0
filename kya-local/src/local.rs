//! Lookups, updates, and the loop of both.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use alloy_primitives::Address;
use registry_core::{
    eth::timestamp::Timestamp,
    registry::kya::Kya,
    snapshot::{BUNDLE_MAX, Manifest, ShardEntry, SnapshotError, read_bundle},
};
use tokio::{
    sync::Mutex,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    error::Error,
    holding::{CurrentManifest, Holding},
    moment::{Moment, now_millis},
    options::Options,
    sample::{Sample, random},
    service::{ApiClient, ApiResponse, MANIFEST, bundle_path},
    space::Space,
    spot_check::{Checker, SpotCheck},
};

/// Bundles after which a long update is made durable.
const BUNDLES_A_SAVE: u32 = 16;
/// The most manifests that an update fetches, where each took so long that its verdicts are old already.
const ROUNDS_MAX: u32 = 3;
/// The longest wait for the API's rate limit before it is asked again.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The most such waits for one request.
const WAITS_MAX: u32 = 3;

/// The registry, held in a file. It is shared by reference or in an `Arc`: all methods take `&self`.
#[derive(Debug)]
pub struct LocalKya {
    options: Options,
    service: ApiClient,
    holding: Holding,
    /// The data file's space, which one update at a time writes to.
    space: Mutex<Space>,
    sample: Sample,
    checker: Option<Checker>,
}

/// The figures of one update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateStats {
    /// The block that verdicts are as of now.
    pub block: u64,
    /// The number of agents.
    pub agents: u64,
    /// Shards and segments that were fetched.
    pub shards: u64,
    /// Requests to the API.
    pub requests: u64,
    /// Bytes of its answers, as they came over the network.
    pub bytes: u64,
}

/// A report of [`LocalKya::run`].
#[derive(Debug)]
pub enum Event {
    /// An update is complete.
    Updated(UpdateStats),
    /// An update failed. The next one goes on where it ended; verdicts are given until they are too old.
    UpdateFailed(Error),
    /// A verdict was compared with the chain's.
    Checked(SpotCheck),
    /// A verdict could not be compared.
    CheckFailed(Error),
}

impl LocalKya {
    /// Opens the file, or creates it. Sends no request: where the file holds a registry that is not too old,
    /// verdicts are given at once.
    ///
    /// # Errors
    ///
    /// [`Error::Option`], [`Error::InUse`], [`Error::File`].
    pub fn open(options: Options) -> Result<Self, Error> {
        let service = ApiClient::new(&options.api)?;
        let checks = options.spot_checks.clone();
        let checker = checks.map(|checks| Checker::new(checks, options.identity)).transpose()?;
        let (holding, space) = Holding::open(&options.file, options.identity, Moment::now())?;
        Ok(Self { options, service, holding, space: Mutex::new(space), sample: Sample::default(), checker })
    }

    /// Returns the verdict on a wallet: the API's, with the past that a wallet has, as of the snapshot's
    /// block. Reads one shard and a few segments from the file, and uses no network.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`] in place of a verdict that is too old; [`Error::AskChain`];
    /// [`Error::Snapshot`] or [`Error::File`] where the disk lost a shard, which the next update mends.
    pub fn kya(&self, wallet: Address) -> Result<Kya, Error> {
        let usable = |current: &CurrentManifest| self.usable_at(current);
        let found = self.holding.look_up(wallet, usable, |facts, manifest, time| {
            facts.verdict(wallet, manifest, Timestamp::from_millis(time))
        });
        let kya = found?.ok_or(Error::AskChain)?;
        // A wallet without a verdict here has none that a spot check could compare.
        if self.checker.is_some() {
            self.sample.note(wallet);
        }
        Ok(kya)
    }

    /// Returns the age that a verdict would have now; `None` while nothing is held yet, and where this
    /// computer's clock was set back since a process before this one fetched it.
    pub fn age(&self) -> Option<Duration> {
        self.holding.current(|current| Some(current.age(current.time(now_millis())?))).flatten()
    }

    /// Returns the time at which verdicts are given, unix milliseconds. Errors: the copy is too old for them.
    fn usable_at(&self, current: &CurrentManifest) -> Result<u64, Error> {
        let time = current.time(now_millis()).ok_or(Error::Stale { age: None })?;
        let age = current.age(time);
        let block = current.manifest.as_of.block_timestamp.as_millis();
        let of_block = Duration::from_millis(time.saturating_sub(block));
        let is_old_block = self.options.max_block_age.is_some_and(|max| of_block > max);
        match age > self.options.max_age || is_old_block {
            true => Err(Error::Stale { age: Some(if is_old_block { of_block } else { age }) }),
            false => Ok(time),
        }
    }

    /// Fails where an older block is offered than the one that is held and not too old.
    fn check_advance(&self, offered: &Manifest) -> Result<(), Error> {
        let went_back = self.holding.current(|current| {
            let (held, offered) = (current.manifest.as_of, offered.as_of);
            let is_older =
                (offered.block_number, offered.block_timestamp) < (held.block_number, held.block_timestamp);
            (is_older && self.usable_at(current).is_ok()).then_some((held.block_number, offered.block_number))
        });
        went_back.flatten().map_or(Ok(()), |(held, offered)| Err(Error::WentBack { held, offered }))
    }

    /// Fetches the manifest, and the shards and segments that are new. Verdicts go by them once all are here;
    /// an update that fails or is dropped leaves them as they were, and the next one goes on where it ended.
    /// Where the API's rate limit is used up, it waits, up to three times for one request.
    ///
    /// # Errors
    ///
    /// [`Error::Unreachable`], [`Error::Refused`], [`Error::WentBack`], [`Error::Snapshot`], [`Error::File`].
    pub async fn update(&self) -> Result<UpdateStats, Error> {
        let mut space = self.space.lock().await;
        let (mut update, mut adopted) = (UpdateStats::default(), false);
        let fetched = self.fetch(&mut space, &mut update, &mut adopted).await;
        if fetched.is_err() && update.shards > 0 {
            self.holding.save()?;
        }
        match fetched {
            // In a round after an adopted one: that one is in force.
            Err(Error::Unreachable(_) | Error::Refused { .. }) if adopted => Ok(update),
            fetched => fetched.map(|()| update),
        }
    }

    async fn fetch(
        &self,
        space: &mut Space,
        update: &mut UpdateStats,
        adopted: &mut bool,
    ) -> Result<(), Error> {
        for _ in 0..ROUNDS_MAX {
            let (began, before) = (Instant::now(), update.shards);
            let answer = self.ask(update, MANIFEST).await?;
            let received = Moment::now();
            let manifest = Manifest::parse(&answer.bytes)?;
            if manifest.identity != self.options.identity {
                return Err(SnapshotError::Another.into());
            }
            self.check_advance(&manifest)?;
            let missing = self.holding.missing(&manifest);
            self.fetch_shards(space, update, &missing).await?;
            if self.holding.missing(&manifest).is_empty() {
                (update.block, update.agents) = (manifest.as_of.block_number, manifest.agents);
                self.holding.adopt(space, manifest, received)?;
                *adopted = true;
                // A round that took long has left an old copy: another one follows.
                if began.elapsed() < self.options.max_age / 4 {
                    break;
                }
            } else if update.shards == before {
                break;
            }
        }
        // Without one the API has had newer shards each time: the next update goes on.
        if *adopted { Ok(()) } else { Err(Error::Refused { status: 404, retry_after: None }) }
    }

    /// Fetches these shards, as far as the API still has these versions of them.
    async fn fetch_shards(
        &self,
        space: &mut Space,
        update: &mut UpdateStats,
        missing: &[ShardEntry],
    ) -> Result<(), Error> {
        for (entries, count) in missing.chunks(BUNDLE_MAX).zip(1_u32..) {
            let received = match self.ask(update, &bundle_path(entries)).await {
                // The newest manifest has another version of each.
                Err(Error::Refused { status: 404, .. }) => return Ok(()),
                received => received?,
            };
            for (entry, bytes) in entries.iter().zip(read_bundle(&received.bytes, entries.len())?) {
                if let Some(bytes) = bytes {
                    self.holding.add(space, *entry, bytes)?;
                    update.shards += 1;
                }
            }
            if count.is_multiple_of(BUNDLES_A_SAVE) {
                self.holding.save()?;
            }
        }
        Ok(())
    }

    /// Asks the API, again after a while where its rate limit is used up.
    async fn ask(&self, update: &mut UpdateStats, path: &str) -> Result<ApiResponse, Error> {
        let mut waits = 0;
        loop {
            update.requests += 1;
            match self.service.get(path).await {
                Err(Error::Refused { status: 429, retry_after }) if waits < WAITS_MAX => {
                    waits += 1;
                    sleep(retry_after.unwrap_or(WAIT_MAX).clamp(Duration::from_secs(1), WAIT_MAX)).await;
                }
                received => {
                    update.bytes += received.as_ref().map_or(0, |received| received.sent);
                    return received;
                }
            }
        }
    }

    /// Compares the verdict on a wallet with the chain's, both as of the snapshot's block.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] without [`Options::spot_checks`]; [`Error::Chain`] where the endpoint gives no
    /// evidence; those of [`kya`](Self::kya).
    pub async fn spot_check(&self, wallet: Address) -> Result<SpotCheck, Error> {
        let checker = self.checker.as_ref().ok_or(Error::Option("spot_checks is not set"))?;
        let usable = |current: &CurrentManifest| self.usable_at(current);
        let held =
            self.holding.look_up(wallet, usable, |facts, manifest, _| facts.provable(wallet, manifest));
        checker.check(held?.ok_or(Error::AskChain)?).await
    }

    /// Keeps the registry up to date, and compares verdicts with the chain's where
    /// [`Options::spot_checks`] say so: one that was asked for since the last comparison, or else a random
    /// one. It never ends; drop or abort it.
    ///
    /// ```no_run
    /// # async fn example(options: kya_local::Options) -> Result<(), kya_local::Error> {
    /// use std::sync::Arc;
    ///
    /// use kya_local::{Event, LocalKya, SpotCheck};
    ///
    /// let local = Arc::new(LocalKya::open(options)?);
    /// let own = Arc::clone(&local);
    /// tokio::spawn(async move {
    ///     own.run(|event| match event {
    ///         Event::Checked(SpotCheck::Contradicts(found)) => eprintln!("a lie: {}", found.evidence),
    ///         event => println!("{event:?}"),
    ///     })
    ///     .await
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run(&self, mut report: impl FnMut(Event)) -> Infallible {
        let every = |period: Duration| {
            let mut interval = interval(period.max(Duration::from_millis(1)));
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        };
        let mut updates = every(self.options.update_every);
        let mut checks = every(self.options.spot_checks.as_ref().map_or(WAIT_MAX, |checks| checks.every));
        loop {
            tokio::select! {
                biased;
                _ = updates.tick() => report(match self.update().await {
                    Ok(update) => Event::Updated(update),
                    Err(error) => Event::UpdateFailed(error),
                }),
                _ = checks.tick(), if self.checker.is_some() => match self.check_one().await {
                    Ok(Some(check)) => report(Event::Checked(check)),
                    Ok(None) => {}
                    Err(error) => report(Event::CheckFailed(error)),
                },
            }
        }
    }

    /// Makes one comparison; `None` where there is nothing to compare.
    async fn check_one(&self) -> Result<Option<SpotCheck>, Error> {
        let wallet = match self.sample.take() {
            Some(wallet) => wallet,
            None => {
                let wallets = self.holding.wallets_at(random())?;
                let index = random().checked_rem(wallets.len() as u64).unwrap_or(0);
                let Some(wallet) = usize::try_from(index).ok().and_then(|index| wallets.get(index)) else {
                    return Ok(None);
                };
                *wallet
            }
        };
        match self.spot_check(wallet).await {
            Err(Error::AskChain) => Ok(None),
            check => check.map(Some),
        }
    }
}
