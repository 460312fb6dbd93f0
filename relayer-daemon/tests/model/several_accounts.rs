//! Histories with several accounts: each carries its part, and what stops one stops it alone.

use relayer_daemon::gas::fees::Fees;
use relayer_daemon::outcome::Finality;
use relayer_daemon::sender::SendJob;
use relayer_daemon::store::RelayTerms;

use super::ops::Op::*;
use super::*;

const fn accounts(accounts: u8) -> Setup {
    Setup { accounts, ..SINGLE }
}

#[test]
fn each_relay_goes_to_the_least_loaded_account_and_each_account_has_its_own_place_in_the_pool() {
    let ops = [vec![Unwilling(true)], requests()].concat();
    history(accounts(2), ops, |simulation| assert_eq!(simulation.given(), [2, 2]));
    let ops = [vec![Unwilling(true)], requests().repeat(4)].concat();
    // With two accounts all that are next are in the pool.
    for (count, in_the_pool) in [(1, MAX_PENDING), (2, usize::from(SIGNERS))] {
        history(accounts(count), &ops, |simulation| {
            assert_eq!(simulation.world.chain().pool(), in_the_pool, "{count} accounts");
        });
    }
}

#[test]
fn an_empty_account_gets_no_relays_until_it_is_funded_and_keeps_only_those_in_flight_waiting() {
    let round = [requests(), vec![Mine(8), Wait(20)]].concat();
    run(accounts(3), async |simulation| {
        simulation.play([Empty(0, true)]).await;
        simulation.play(round.repeat(2)).await;
        assert_eq!(simulation.given(), [0, 4, 4]);
        assert_eq!((simulation.requests.len(), simulation.executed()), (8, 8));
        simulation.play([Empty(0, false), Wait(10)]).await;
        simulation.play(round).await;
        let [funded] = simulation.given();
        assert!(funded > 0, "not used again");
    });

    let emptied =
        [Unwilling(true), Request(0), Wait(10), Empty(0, true), Wait(10), Unwilling(false)].to_vec();
    history(accounts(2), [emptied, of_the_others()].concat(), |simulation| {
        assert_eq!(simulation.given(), [1, 9]);
        assert_eq!(simulation.requests.len() - simulation.executed(), 1, "waiting");
    });
}

/// Returns three rounds of requests of all signers but the first, with the blocks for them.
fn of_the_others() -> Vec<super::ops::Op> {
    [Request(1), Request(2), Request(3), Wait(10), Mine(8), Wait(20)].repeat(3)
}

#[test]
fn an_account_that_got_code_gets_no_relays_and_where_all_have_got_some_the_reason_is_told() {
    run(accounts(2), async |simulation| {
        simulation.found_code(0, true);
        simulation.play([requests(), vec![Mine(8), Wait(20)]].concat()).await;
        let [delegated, other] = simulation.given();
        assert_eq!((delegated, other > 0), (0, true));
        simulation.found_code(1, true);
        simulation.play([Request(0), Wait(20)]).await;
        let dropped = simulation.requests.keys().find_map(|id| match simulation.record(*id).outcome {
            Some(RelayOutcome::Dropped { failure }) => Some(failure.code),
            _ => None,
        });
        assert_eq!(dropped, Some(ErrorCode::AccountDelegated));
        // The delegation is taken back.
        simulation.found_code(0, false);
        simulation.play([Repeat(0), Wait(10)]).await;
        assert_eq!(simulation.given(), [1]);
    });
}

#[test]
fn where_accounts_get_no_relays_for_different_reasons_the_balance_is_told_only_of_an_empty_one() {
    run(accounts(2), async |simulation| {
        simulation.cordon(&[1], true);
        let why = |simulation: &Simulation| {
            let refused = simulation.living().next().unwrap().relayer.accounts.check();
            refused.err().map(|failure| failure.code)
        };
        assert_eq!(why(simulation), None);
        simulation.found_code(0, true);
        assert_eq!(why(simulation), Some(ErrorCode::AccountDelegated), "both accounts have funds");
        simulation.found_code(0, false);
        simulation.play([Empty(0, true), Wait(10)]).await;
        assert_eq!(why(simulation), Some(ErrorCode::RelayerBalanceTooLow));
    });
}

#[test]
fn while_every_account_is_cordoned_accepted_relays_wait_until_their_deadline_and_new_ones_are_refused() {
    run(SINGLE, async |simulation| {
        simulation.play([vec![Unwilling(true)], requests()].concat()).await;
        simulation.play([RequestUntil(SIGNERS, 40), Wait(5)]).await;
        assert_eq!(simulation.given(), [MAX_PENDING as u64], "two wait for room");
        simulation.cordon(&[0], true);
        simulation.play([Wait(200), Request(0), Wait(5)]).await;
        assert_eq!(simulation.requests.len(), usize::from(SIGNERS) + 1, "a new one was accepted");
        assert_eq!(simulation.told.lock().unwrap().len(), 0, "one that was accepted has ended");
        simulation.play([Wait(300)]).await;
        let told: Vec<_> = simulation.told.lock().unwrap().values().cloned().collect();
        let [RelayOutcome::Dropped { failure }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(failure.code, ErrorCode::DeadlinePassed);
        simulation.cordon(&[0], false);
        simulation.play([Unwilling(false), Wait(100), Mine(8), Wait(60), Mine(8), Wait(60)]).await;
        assert_eq!(simulation.executed(), usize::from(SIGNERS));
    });
}

#[test]
fn a_relay_that_waits_for_room_holds_its_permit_though_an_account_that_gets_no_relays_is_idle() {
    run(accounts(2), async |simulation| {
        simulation.found_code(0, true);
        simulation.play([vec![Unwilling(true)], requests()[..6].to_vec()].concat()).await;
        assert_eq!(simulation.given(), [0, MAX_PENDING as u64]);
        let job = SendJob {
            relay: RelayTerms::default(),
            calldata: Bytes::new(),
            gas_limit: 1,
            fees: Fees { max_fee: 1, tip: 1 },
            head: 0,
            checked_at: Instant::now(),
        };
        let relayer = Arc::clone(&simulation.living().next().unwrap().relayer);
        let permit = Arc::new(());
        let held = Arc::downgrade(&permit);
        let later = async {
            sleep(Duration::from_secs(3)).await;
            held.upgrade().is_some()
        };
        tokio::select! {
            dispatched = relayer.accounts.dispatch(job, permit) => panic!("{dispatched:?}"),
            is_held = later => assert!(is_held, "more are checked than will soon be sent"),
        }
    });
}

#[test]
fn an_account_whose_oldest_transaction_is_stuck_gets_no_more_unless_all_are_stuck() {
    let stuck = vec![Ignored(0, true), Request(0), Wait(1_300)];
    history(accounts(3), [stuck, of_the_others()].concat(), |simulation| {
        let [stuck, second, third] = simulation.given();
        assert_eq!((stuck, second + third), (1, 9));
    });
    let ops = [Unwilling(true), Request(0), Request(1), Wait(1_300), Request(2), Wait(10)];
    history(accounts(2), ops, |simulation| assert_eq!(simulation.given::<2>().iter().sum::<u64>(), 3));
}

/// Starts anew without the first account's key.
async fn without_the_first_key(simulation: &mut Simulation) {
    simulation.kill();
    simulation.keys.remove(0);
    simulation.play([Wait(10)]).await;
}

#[test]
fn what_an_account_has_mined_becomes_final_though_its_key_is_gone() {
    run(accounts(2), async |simulation| {
        simulation.play([requests(), vec![Mine(8), Wait(20)]].concat()).await;
        assert_eq!((simulation.given(), simulation.executed()), ([2, 2], 4));
        without_the_first_key(simulation).await;
        simulation.play([Wait(12_000), Mine(8), Wait(1_200)]).await;
        for id in simulation.requests.keys() {
            assert_eq!(simulation.record(*id).finality, Some(Finality::Finalized));
        }
    });
}

#[test]
fn what_a_reorganisation_undoes_of_an_account_without_its_key_is_carried_by_another() {
    let ended = run(accounts(2), async |simulation| {
        simulation.play([Request(0), Wait(10), Mine(8), Wait(20)]).await;
        assert_eq!((simulation.given(), simulation.executed()), ([1, 0], 1));
        without_the_first_key(simulation).await;
        simulation.play([Reorganise(1, true), Wait(400), Mine(8), Wait(50)]).await;
        assert_eq!(simulation.given(), [1, 1]);
    });
    assert_eq!(ended.executed(), 1);
}

#[test]
fn a_relay_that_only_a_full_account_can_pay_for_holds_up_no_other() {
    run(accounts(2), async |simulation| {
        // Enough for a few relays, and not for one of ten times the gas.
        let (rich, poor) = (simulation.account(0), simulation.account(1));
        simulation.world.chain().balances.insert(poor, 1_500_000 * GWEI);
        simulation.play([Wait(10), Ignored(0, true)]).await;
        simulation
            .play([DearRequest(0), DearRequest(1), DearRequest(2)].map(|dear| [dear, Wait(5)]).concat())
            .await;
        assert_eq!(simulation.given(), [3, 0], "in the rich account's full pool");
        simulation.play([DearRequest(3), Wait(10)]).await;
        let before: BTreeSet<B256> = simulation.requests.keys().copied().collect();
        simulation.play([Request(SIGNERS), Wait(20), Mine(8), Wait(20)]).await;
        let small = simulation.requests.keys().find(|id| !before.contains(*id)).copied().unwrap();
        assert!(simulation.is_executed(small), "waits behind the dear one of {rich}");
        simulation.world.chain().balances.clear();
    });
}

#[test]
fn a_signers_requests_are_executed_in_order_whatever_account_sends_them() {
    let ops = [[Request(0)].repeat(6), [Wait(10), Mine(8)].repeat(25)].concat();
    history(accounts(3), ops, |simulation| {
        assert_eq!(simulation.executed(), 6);
        assert_eq!(simulation.tries(), [1; 6], "sent before its turn");
    });
}

#[test]
fn the_account_that_sees_a_block_first_has_the_others_look_at_once() {
    run(accounts(3), async |simulation| {
        simulation.play([Unwilling(true)]).await;
        // Each account looks once a second, and at its own time of the second.
        for index in 0..3 {
            simulation.play([Request(index), Wait(3)]).await;
        }
        assert_eq!(simulation.given(), [1, 1, 1]);
        simulation.play([Wait(60), Unwilling(false), Mine(8)]).await;
        let mut ended = BTreeMap::new();
        while ended.len() < 3 {
            for id in simulation.requests.keys().filter(|id| !simulation.is_waited_for(**id)) {
                ended.entry(*id).or_insert_with(Instant::now);
            }
            sleep(Duration::from_millis(10)).await;
        }
        let (first, last) = (ended.values().min().unwrap(), ended.values().max().unwrap());
        assert!(*last - *first < Duration::from_millis(250), "{:?} apart", *last - *first);
    });
}
