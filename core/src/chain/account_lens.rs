//! The account lens: a read-only contract (`contracts/src/AccountLens.sol`) that says in one `eth_call` what
//! no contract on a chain does: whether an account has code. Like the [lens](super::lens) over agents it is
//! never deployed, and runs by the same methods.
//!
//! It answers `aggregate3` as Multicall3 does, so that a chunk with a call to [`ADDRESS`] goes to the lens as
//! it is, other calls included. All calls are static: an account whose code is asked for an opinion cannot
//! change what the calls after it read.

use alloy_primitives::{Address, B256, Bytes, U256};
use alloy_sol_types::SolCall as _;

use super::{
    lens::{self, Method},
    view::{Halt, View},
};
use crate::eth::abi::{IAccountLens::checkCall, IERC1271::isValidSignatureCall};

/// Runtime bytecode of `AccountLens`, as hexadecimal digits.
const CODE: &str = include_str!("account_lens.hex");

/// The lens's own address in its calls: the last 20 bytes of `keccak256("account lens")`.
pub(crate) const ADDRESS: Address = alloy_primitives::address!("0x02f9e34504a5c63486edd977e036cc4cc5f4363c");

/// What an account says of a signature, as far as its code goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignerCode {
    /// Whether it has code; a delegation by EIP-7702 is code.
    pub has_code: bool,
    /// Whether its code accepts the signature (ERC-1271); false where it was not asked.
    pub accepts: bool,
}

/// The parameters of the `eth_call` with this calldata of `aggregate3`.
pub(super) fn params(data: &[u8], method: Method, block: &str) -> String {
    lens::run((ADDRESS, CODE), data, method, block)
}

/// Whether an account has code, and what the code says to a signature of this hash, for at most `gas` and half
/// of what the call has.
pub(crate) fn signer_code(
    view: &View,
    account: Address,
    signed: Option<(B256, &Bytes)>,
    gas: U256,
) -> Result<SignerCode, Halt> {
    let data = signed.map_or_else(Bytes::new, |(hash, signature)| {
        isValidSignatureCall { hash, signature: signature.clone() }.abi_encode().into()
    });
    let check = view.call(ADDRESS, &checkCall { account, data, most: gas })?;
    // The answer to a valid signature is the function's selector at the head of a word.
    let accepts = check.answer == B256::right_padding_from(&isValidSignatureCall::SELECTOR);
    Ok(SignerCode { has_code: !check.codeSize.is_zero(), accepts })
}
