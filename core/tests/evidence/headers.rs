//! Block headers: hashed whole, and read by the positions of their fields.

use alloy_primitives::{B256, hex, keccak256};
use registry_core::evidence::BlockHeader;

/// Encodes a list of strings as RLP.
fn list(fields: &[Vec<u8>]) -> Vec<u8> {
    let mut rlp = Vec::new();
    let fields: Vec<&[u8]> = fields.iter().map(Vec::as_slice).collect();
    alloy_rlp::encode_list::<_, [u8]>(&fields, &mut rlp);
    rlp
}

/// Makes the 21 fields of a header of Base since its Isthmus fork, as many as Ethereum's since Prague.
fn op_stack() -> Vec<Vec<u8>> {
    // Fields that are not read may have any length.
    let mut fields = vec![vec![0xcc; 32]; 21];
    for (place, field) in [
        (0, vec![0xaa; 32]),             // parentHash
        (3, vec![0xbb; 32]),             // stateRoot
        (6, vec![0x10; 256]),            // logsBloom
        (7, vec![]),                     // difficulty: 0
        (8, hex!("017d7840").to_vec()),  // number: 25,000,000
        (11, hex!("6925a000").to_vec()), // timestamp
    ] {
        fields[place] = field;
    }
    fields
}

#[test]
fn an_op_stack_header_and_one_with_fields_of_tomorrow_are_hashed_whole() {
    for extra in 0..4 {
        let mut fields = op_stack();
        fields.extend((0..extra).map(|_| vec![0x99; 32]));
        let rlp = list(&fields);
        let header = BlockHeader::decode(&rlp).unwrap();
        assert_eq!(header.hash, keccak256(&rlp));
        assert_eq!((header.number, header.timestamp), (25_000_000, 0x6925_a000));
        assert_eq!([header.parent_hash, header.state_root], [0xaa, 0xbb].map(B256::repeat_byte));
    }
}

#[test]
fn what_is_no_header_is_refused() {
    let fields = op_stack();
    assert!(BlockHeader::decode(&list(&fields[..15])).is_some(), "as before London");
    assert!(BlockHeader::decode(&list(&fields[..14])).is_none(), "too few fields");
    let whole = list(&fields);
    assert!(BlockHeader::decode(&whole[..whole.len() - 1]).is_none(), "cut short");
    assert!(BlockHeader::decode(&[whole.as_slice(), &[0]].concat()).is_none(), "something behind it");
    assert!(BlockHeader::decode(&[]).is_none() && BlockHeader::decode(&[0xc0]).is_none());
    for (place, wrong) in
        [(0, vec![1; 31]), (3, vec![1; 33]), (8, vec![0, 1]), (8, vec![1; 9]), (11, vec![0])]
    {
        let mut fields = fields.clone();
        fields[place] = wrong;
        assert!(BlockHeader::decode(&list(&fields)).is_none(), "field {place}");
    }
}
