//! The operations of a history, and their execution.

use std::net::IpAddr;
use std::pin::pin;

use super::requests::signer;
use super::*;

#[derive(Debug, Clone, Copy)]
pub enum Op {
    Request(u8),
    RequestUntil(u8, u8),
    /// A request for ten times the gas.
    DearRequest(u8),
    /// A request by a client that hangs up after this many moments.
    HangUp(u8, u8),
    /// A client of this signer sends its last request once more.
    Repeat(u8),
    /// A client sends an earlier request once more, this many before its last.
    RepeatEarlier(u8, u8),
    Mine(usize),
    Drop(usize),
    Reorganise(usize, bool),
    Foreign(u8),
    Empty(u8, bool),
    Ignored(u8, bool),
    Bypass(u8),
    Lose(LostSend),
    /// The base fee, in tenths of gwei.
    BaseFee(u16),
    /// Time goes by, in tenths of a second.
    Wait(u16),
    Restart,
    LateReceipts(u8),
    /// Each answer is from a machine that is up to this many seconds behind.
    OldViews(u8),
    WrongCount(u64),
    FailingReads(u8),
    SilentEndpoint(bool),
    /// The endpoint fails, or no longer fails, when it is asked for the next nonce.
    NoNonces(bool),
    Latency(u8),
    DiskFull(bool),
    Kill(u8),
    Pause(u8, bool),
    /// One daemon's writes fail, or no longer fail: its leases end, and others go on.
    Cut(u8, bool),
    /// From now on the database's replica gets nothing more; a failover loses what was committed since.
    Lag,
    Failover,
    /// The operator gives up what an account has in flight, which is cordoned from now on.
    Abandon(u8),
    Unwilling(bool),
    Revert,
    /// The node calls every relay's transaction invalid.
    Rejecting(bool),
    /// The wall clock jumps by this many minutes.
    ClockStep(i16),
}

/// `request.gas` of most requests.
const GAS: u64 = 100_000;
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn set(accounts: &mut BTreeSet<Address>, account: Address, is_in: bool) {
    if is_in {
        accounts.insert(account);
    } else {
        accounts.remove(&account);
    }
}

/// Returns one request of each signer, one after the other.
pub fn requests() -> Vec<Op> {
    (0..SIGNERS).flat_map(|index| [Op::Request(index), Op::Wait(5)]).collect()
}

impl Simulation {
    async fn request(&mut self, index: u8, seconds: Option<u8>, gas: u64) {
        let body = self.next_body(index, seconds, gas);
        self.post(body).await;
    }

    /// Returns the signer's next request, as a client would post it now.
    fn next_body(&mut self, index: u8, seconds: Option<u8>, gas: u64) -> Vec<u8> {
        let on_chain = self.world.chain().now().forwarder_nonce(signer(index));
        let of_fleet = (self.lives.len() > 1).then(|| self.store.pending_nonces(signer(index)).unwrap());
        let pending = of_fleet.unwrap_or_default();
        let next = |life: &Life| life.relayer.inflight.next_nonce(signer(index), on_chain, &pending);
        let nonce = self.living().next().map_or(on_chain, next);
        let deadline = seconds.map_or(0, |seconds| self.clock.now() + u64::from(seconds));
        let body = body(index, nonce, deadline, gas);
        self.sent.entry(index).or_default().push(body.clone());
        body
    }

    /// Posts a request of the signer once more: the one that is `before` places before its last.
    async fn repeat(&mut self, index: u8, before: u8) {
        let sent = self.sent.get(&index).and_then(|sent| sent.iter().nth_back(before.into()));
        if let Some(body) = sent.cloned() {
            self.post(body).await;
        }
    }

    pub(super) async fn post(&mut self, body: Vec<u8>) {
        let Some(life) = self.next_life() else { return };
        let relayer = Arc::clone(&life.relayer);
        let Ok(ticket) = relayer.accept(&body, CLIENT, None).await else { return };
        let (id, terms) = identify(&body);
        assert_eq!(id, ticket.id);
        self.requests.insert(id, terms);
        self.told.lock().unwrap().remove(&id);
        let told = Arc::clone(&self.told);
        tokio::spawn(async move {
            let mut waiting = ticket.waiting;
            let heard = waiting.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
            heard.map(|outcome| told.lock().unwrap().insert(id, outcome));
        });
    }

    /// Posts a request by a client that hangs up: the server drops the handler's future wherever it is.
    async fn hang_up(&mut self, index: u8, moments: u8) {
        let body = self.next_body(index, None, GAS);
        let Some(life) = self.next_life().map(|life| Arc::clone(&life.relayer)) else { return };
        let (id, terms) = identify(&body);
        self.hung_up.insert(id, terms);
        self.told.lock().unwrap().remove(&id);
        let mut accepting = pin!(life.accept(&body, CLIENT, None));
        for _ in 0..moments {
            if (&mut accepting).now_or_never().is_some() {
                return;
            }
            // Time is paused while the store works, so each moment lasts as long as a read or a write.
            sleep(Duration::from_millis(1)).await;
        }
    }

    pub async fn play(&mut self, ops: impl AsRef<[Op]>) {
        for op in ops.as_ref() {
            self.apply(*op).await;
        }
    }

    pub async fn apply(&mut self, op: Op) {
        match op {
            Op::Request(index) => self.request(index, None, GAS).await,
            Op::RequestUntil(index, seconds) => self.request(index, Some(seconds), GAS).await,
            Op::DearRequest(index) => self.request(index, None, 10 * GAS).await,
            Op::HangUp(index, moments) => self.hang_up(index, moments).await,
            Op::Repeat(index) => self.repeat(index, 0).await,
            Op::RepeatEarlier(index, before) => self.repeat(index, before).await,
            Op::Revert => self.world.chain().reverts += 1,
            Op::Rejecting(rejects) => self.world.chain().rejects = rejects,
            Op::Mine(room) => self.world.chain().mine(room),
            Op::Drop(index) => self.world.chain().drop_from_pool(index),
            Op::Reorganise(depth, forget) => self.world.chain().reorganise(depth, forget),
            Op::Foreign(index) => self.world.chain().foreign_transaction(self.account(index)),
            Op::Empty(index, empty) => set(&mut self.world.chain().empty, self.account(index), empty),
            Op::Ignored(index, ignored) => set(&mut self.world.chain().ignored, self.account(index), ignored),
            Op::Bypass(index) => self.world.chain().bypass(signer(index)),
            Op::Lose(lost) => self.world.faults().lost.push_back(lost),
            Op::BaseFee(tenths) => {
                let wei = u128::from(tenths) * GWEI / 10;
                self.lowest_base_fee = self.lowest_base_fee.min(wei);
                self.world.chain().set_base_fee(wei);
            }
            Op::Wait(tenths) => {
                sleep(Duration::from_millis(u64::from(tenths) * 100)).await;
                self.look_at_balances();
            }
            Op::Restart => self.kill(),
            Op::LateReceipts(seconds) => {
                self.answers_were_late |= seconds > 0;
                self.world.faults().late_receipts = Duration::from_secs(seconds.into());
            }
            Op::OldViews(seconds) => {
                self.answers_were_late |= seconds > 0;
                self.world.faults().oldest_view = Duration::from_secs(seconds.into());
            }
            Op::WrongCount(count) => self.world.faults().wrong_counts.push_back(count),
            Op::FailingReads(count) => self.world.faults().failing_reads = usize::from(count),
            Op::NoNonces(fails) => self.world.faults().no_nonces = fails,
            Op::Latency(millis) => self.world.faults().latency = Duration::from_millis(millis.into()),
            Op::SilentEndpoint(silent) => self.world.faults().silent_endpoint = silent,
            Op::DiskFull(full) => {
                self.disk_was_full |= full;
                self.disk_full.iter().for_each(|disk| disk.store(full, Ordering::Relaxed));
            }
            Op::Kill(index) => self.kill_one(usize::from(index) % self.lives.len()),
            Op::Pause(index, paused) => self.pause(usize::from(index) % self.lives.len(), paused),
            Op::Cut(index, cut) => {
                self.disk_was_full |= cut;
                self.disk_full[usize::from(index) % self.lives.len()].store(cut, Ordering::Relaxed);
            }
            Op::Lag => {
                self.database.lag();
                self.lags = true;
            }
            Op::Failover if self.lags => {
                self.world.lost_commits.store(true, Ordering::Relaxed);
                self.database.fail_over();
                self.follow_orders();
            }
            Op::Failover => {}
            Op::Abandon(index) => {
                let account = self.account(index);
                // One account is left to send from.
                if account != self.world.accounts[0] {
                    self.was_abandoned = true;
                    for order in [Order::Cordon { account }, Order::Abandon { account }] {
                        self.store.order(order, "model").unwrap();
                    }
                    self.follow_orders();
                }
            }
            Op::Unwilling(unwilling) => self.world.chain().unwilling = unwilling,
            Op::ClockStep(minutes) => {
                self.clock_was_set = true;
                self.clock.step_seconds.fetch_add(i64::from(minutes) * 60, Ordering::Relaxed);
            }
        }
        if self.living().count() < self.lives.len() {
            self.start().await;
        }
        // Lets everything due happen.
        sleep(Duration::from_millis(50)).await;
    }
}
