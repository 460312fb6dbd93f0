//! Random histories: the frequency of each operation, and the number of histories.

use std::{env, ops::Range};

use proptest::prelude::*;

use super::*;

/// Configures as many histories as `PROPTEST_CASES` says, or this many without it.
pub fn config(in_the_suite: u32) -> ProptestConfig {
    let cases = env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(in_the_suite);
    ProptestConfig { cases, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() }
}

/// Generates histories of this many daemons, with one to three accounts.
pub fn history(
    daemons: Range<usize>,
    is_postgres: bool,
    op: impl Strategy<Value = Op>,
) -> impl Strategy<Value = (Setup, Vec<Op>)> {
    let setup =
        move |(daemons, accounts, budget, seed)| Setup { daemons, is_postgres, accounts, budget, seed };
    let setups = (daemons, 1_u8..4, budget(), any::<u64>()).prop_map(setup);
    (setups, prop::collection::vec(op, 1..60))
}

/// Generates a budget, wei: no limit, or one that few relays use up.
fn budget() -> impl Strategy<Value = u128> {
    prop_oneof![Just(u128::MAX), (1_u128..40).prop_map(|milli| milli * 1_000_000 * GWEI)]
}

/// Generates an operation on one daemon.
pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..SIGNERS).prop_map(Op::Request),
        1 => (0..SIGNERS, 1_u8..120).prop_map(|(signer, seconds)| Op::RequestUntil(signer, seconds)),
        2 => (0..SIGNERS, 1_u8..6).prop_map(|(signer, moments)| Op::HangUp(signer, moments)),
        1 => (0..SIGNERS).prop_map(Op::Repeat),
        1 => (0..SIGNERS, 1_u8..4).prop_map(|(signer, before)| Op::RepeatEarlier(signer, before)),
        6 => (0_usize..4).prop_map(Op::Mine),
        5 => (1_u16..100).prop_map(Op::Wait),
        1 => (100_u16..600).prop_map(Op::Wait),
        1 => (0_usize..3).prop_map(Op::Drop),
        1 => (1_usize..4, any::<bool>()).prop_map(|(depth, forget)| Op::Reorganise(depth, forget)),
        1 => (0_u8..3).prop_map(Op::Foreign),
        1 => (0_u8..3, any::<bool>()).prop_map(|(account, empty)| Op::Empty(account, empty)),
        1 => (0_u8..3, any::<bool>()).prop_map(|(account, ignored)| Op::Ignored(account, ignored)),
        1 => (0..SIGNERS).prop_map(Op::Bypass),
        2 => prop_oneof![Just(LostSend::Answer), Just(LostSend::Transaction)].prop_map(Op::Lose),
        2 => (1_u16..700).prop_map(Op::BaseFee),
        1 => Just(Op::Restart),
        1 => (0_u8..120).prop_map(Op::LateReceipts),
        1 => (0_u8..120).prop_map(Op::OldViews),
        1 => prop_oneof![Just(0), 1..20_u64, Just(1 << 40)].prop_map(Op::WrongCount),
        1 => (1_u8..20).prop_map(Op::FailingReads),
        1 => any::<bool>().prop_map(Op::SilentEndpoint),
        1 => (0_u8..200).prop_map(Op::Latency),
        1 => any::<bool>().prop_map(Op::NoNonces),
        1 => (600_u16..3_000).prop_map(Op::Wait),
        1 => any::<bool>().prop_map(Op::DiskFull),
        1 => any::<bool>().prop_map(Op::Unwilling),
        1 => Just(Op::Revert),
        1 => any::<bool>().prop_map(Op::Rejecting),
        1 => (-2_000_i16..2_000).prop_map(Op::ClockStep),
    ]
}

/// Generates an operation on a fleet: one on a single daemon; a daemon that dies, stands still, or cannot
/// write any more; an account that is abandoned; a failover that loses commits.
pub fn fleet_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => op(),
        2 => (0_u8..3).prop_map(Op::Kill),
        2 => (0_u8..3, any::<bool>()).prop_map(|(daemon, paused)| Op::Pause(daemon, paused)),
        2 => (0_u8..3, any::<bool>()).prop_map(|(daemon, cut)| Op::Cut(daemon, cut)),
        2 => (100_u16..200).prop_map(Op::Wait),
        1 => (0_u8..3).prop_map(Op::Abandon),
        1 => Just(Op::Lag),
        1 => Just(Op::Failover),
    ]
}
