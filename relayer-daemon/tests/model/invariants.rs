//! The end of a history: faults pass, everything ends, and what must always hold is checked.

use proptest::{prop_assert, prop_assert_eq};

use relayer_daemon::store::SignedTransaction;

use super::chain::FINAL_AFTER;
use super::node;
use super::*;

const MINUTES_OF_A_WINDOW: i16 = 24 * 60;
const PAUSE: Duration = Duration::from_secs(3);
/// Several of a signer's requests may each wait ten minutes, twice, for a receipt that does not come.
const LONGEST: Duration = Duration::from_secs(2 * 60 * 60);

fn steps(wait: Duration) -> u64 {
    wait.as_secs() / PAUSE.as_secs()
}

impl Simulation {
    /// Ends the faults and lets time and blocks pass until everything has ended.
    pub async fn settle_down(&mut self) {
        *self.world.faults() = node::ModelFaults::default();
        self.disk_full.iter().for_each(|disk| disk.store(false, Ordering::Relaxed));
        (0..self.lives.len()).for_each(|index| self.pause(index, false));
        {
            let mut chain = self.world.chain();
            chain.unwilling = false;
            chain.rejects = false;
            chain.reverts = 0;
            chain.ignored.clear();
            chain.empty.clear();
            // A budget that is too small for a dearer market waits for the old one, and so does what was sent
            // and is not in the store any more.
            let waits = self.budget < u128::MAX || self.world.lost_commits.load(Ordering::Relaxed);
            chain.set_base_fee(if waits { self.lowest_base_fee } else { GWEI });
        }
        if self.disk_was_full {
            // What could not be written is recovered by the next start.
            self.kill();
        }
        let least = steps(self.least_wait());
        for step in 0..least + steps(LONGEST) {
            if step >= least && self.is_quiet() {
                break;
            }
            if step > least && (step - least).is_multiple_of(100) && self.budget < u128::MAX {
                // What the budget of one window does not allow, such as many gaps, waits for the next one's.
                self.apply(Op::ClockStep(MINUTES_OF_A_WINDOW)).await;
            }
            if self.living().count() < self.lives.len() {
                self.start().await;
            }
            self.look_at_balances();
            sleep(PAUSE).await;
            self.world.chain().mine(8);
        }
    }

    /// Returns the time to wait in any case: what a round of comparisons needs, and more where something may
    /// have to be found later.
    fn least_wait(&self) -> Duration {
        let chain = self.world.chain();
        let mut least = Duration::from_secs(120);
        let has_lost = self.world.lost_commits.load(Ordering::Relaxed);
        if chain.reorganised && (chain.now().has_foreign() || has_lost) {
            // If an undone nonce was used by a foreign transaction, or by one that a failover has lost,
            // answers that disagree are waited for: twice ten minutes at most.
            least = Duration::from_secs(720);
        }
        if chain.reorganised && self.answers_were_late {
            // A block may have been compared with a branch that is gone: that is found when it is compared
            // once more, before it becomes safe or final.
            least = least.max(FINAL_AFTER + Duration::from_secs(120));
        }
        least
    }

    pub fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(panics::count(), 0, "a task has panicked: see above");
        let chain = self.world.chain();
        let now = chain.now();
        prop_assert!(self.store.accounts_with_open_nonces().unwrap().is_empty(), "a nonce is stuck");
        prop_assert!(self.is_quiet(), "a client waits for ever: {:?}", self.waited_for());
        for account in self.world.accounts.iter().copied() {
            let next = self.store.next_nonce(account).unwrap().unwrap_or_default();
            let mined = now.mined(account);
            // A foreign transaction may have used our nonce and been undone: the next relay fills that gap.
            let may_differ = chain.reorganised || self.was_abandoned;
            prop_assert!(next <= mined || may_differ, "a nonce was given away and never used");
        }

        let has_lost = self.world.lost_commits.load(Ordering::Relaxed);
        // Foreign transactions that used the nonces again may hide what a reorg has moved.
        let hidden = chain.reorganised && now.has_foreign();
        let stored = |(id, _): &(&B256, _)| self.store.relay(**id).unwrap().is_some();
        for (id, (signer, nonce)) in self.requests.iter().chain(self.hung_up.iter().filter(stored)) {
            let carried = now.carried(*signer, *nonce);
            // What another account was told to carry may be in flight of the one before: that is one paid
            // revert.
            if !chain.reorganised && !self.was_abandoned && !has_lost {
                prop_assert!(carried <= 1, "paid for {} times", carried);
            }
            let Some(record) = self.store.relay(*id).unwrap() else {
                prop_assert!(has_lost, "an accepted relay is not stored");
                continue;
            };
            let outcome = record.outcome.expect("a relay has no end");
            if let Some(told) = self.told.lock().unwrap().get(id)
                && !chain.reorganised
                && !self.disk_was_full
                && !has_lost
            {
                prop_assert_eq!(told, &outcome, "the client was told something else");
            }
            match outcome {
                RelayOutcome::Executed { mined, .. } => {
                    prop_assert!(hidden || now.carried_out(mined.tx_hash))
                }
                RelayOutcome::Reverted { mined, .. } => {
                    prop_assert!(hidden || !now.carried_out(mined.tx_hash))
                }
                RelayOutcome::Dropped { .. } => {
                    let by_us = record.hashes.iter().any(|hash| now.carried_out(*hash));
                    prop_assert!(!by_us || chain.reorganised || has_lost, "executed, and called dropped");
                }
            }
        }

        let budget = self.store.budget(self.budget, self.clock.now()).unwrap();
        // A nonce that was given up may be mined, and be charged yet. What is expected of its relay may have
        // been more then.
        let lost = self.world.accounts.iter().copied().flat_map(|account| {
            let nonces = self.store.lost(account).unwrap().into_iter();
            nonces.map(move |nonce| self.store.assignment(account, nonce).unwrap().transactions)
        });
        let most = |signed: &SignedTransaction| signed.fees.worst_case(signed.gas_limit);
        let given_up: u128 = lost.map(|signed| signed.iter().map(most).max().unwrap_or_default()).sum();
        prop_assert!(budget.reserved_wei <= given_up, "a reservation was forgotten: {budget:?}");
        if self.clock_was_set || has_lost {
            return Ok(());
        }
        if chain.reorganised {
            // What was charged for an undone block stays charged: never less than was really paid.
            prop_assert!(hidden || budget.window.settled_wei >= now.paid());
        } else {
            prop_assert_eq!(budget.window.settled_wei, now.paid(), "charged something else than was paid");
            prop_assert!(now.paid() <= self.budget, "overspent");
        }
        Ok(())
    }

    /// Returns what is in flight at each daemon, whether it runs it, and its end by the store.
    fn waited_for(&self) -> Vec<(B256, bool, Option<Option<RelayOutcome>>)> {
        let stored = self.living().flat_map(|life| life.relayer.inflight.stored());
        stored.map(|(id, is_here)| (id, is_here, self.store.outcome(id).unwrap())).collect()
    }
}
