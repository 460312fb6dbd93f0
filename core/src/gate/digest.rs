//! `Content-Digest`: RFC 9530, section 2.

use sha2::{Digest as _, Sha256, Sha512};

use super::{
    refusal::RefusalCode,
    request::{Content, Request},
    structured,
};

/// The field, in lower case.
pub(super) const FIELD: &str = "content-digest";

/// Checks that content has a digest, before the check that the signature covers it.
///
/// # Errors
///
/// [`RefusalCode::ContentDigestRequired`].
pub(super) fn check_presence(request: &Request<'_>) -> Result<(), RefusalCode> {
    let is_complete = request.content.is_empty() || request.has(FIELD);
    if is_complete { Ok(()) } else { Err(RefusalCode::ContentDigestRequired) }
}

/// Compares the received digests, if there are any, with the content. Every supported one has to match, and
/// there has to be one. Where a proxy keeps the content, only the form of the field is checked.
///
/// # Errors
///
/// [`RefusalCode::BadContentDigest`].
pub(super) fn check(request: &Request<'_>) -> Result<(), RefusalCode> {
    if !request.has(FIELD) {
        return Ok(());
    }
    let field = request.field(FIELD).ok_or(RefusalCode::BadContentDigest)?;
    let digests = structured::dictionary(&field).ok_or(RefusalCode::BadContentDigest)?;
    let mut matched = false;
    for (algorithm, length) in [("sha-256", 32), ("sha-512", 64)] {
        if !digests.contains_key(algorithm) {
            continue;
        }
        let received = structured::bytes_of(&digests, algorithm).ok_or(RefusalCode::BadContentDigest)?;
        let is_right = match (request.content, algorithm) {
            (Content::Withheld { .. }, _) => received.len() == length,
            (Content::Whole(content), "sha-256") => *received == *Sha256::digest(content),
            (Content::Whole(content), _) => *received == *Sha512::digest(content),
        };
        if !is_right {
            return Err(RefusalCode::BadContentDigest);
        }
        matched = true;
    }
    if matched { Ok(()) } else { Err(RefusalCode::BadContentDigest) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::request::Origin;
    use base64ct::{Base64, Encoding as _};

    const SHA_256: &str = "sha-256=:k6I5cakU5erL8KjSUVTNownDwccvu5kU1Hxg88toFYg=:";
    const HELLO: &[u8] = br#"{"hello":"world"}"#;

    fn checked(digest: Option<&str>, content: Content<'_>) -> Result<(), RefusalCode> {
        let origin = Origin::parse("https://api.example").unwrap();
        let fields: Vec<(&str, &[u8])> = digest.iter().map(|digest| (FIELD, digest.as_bytes())).collect();
        let request = Request { method: "POST", origin: &origin, target: "/", fields: &fields, content };
        check_presence(&request).and_then(|()| check(&request))
    }

    #[test]
    fn every_supported_digest_has_to_match_and_one_has_to_be_there() {
        let sha_512 = Base64::encode_string(&Sha512::digest(HELLO));
        let other = SHA_256.replace("k6", "K6");
        for (digest, expected) in [
            (SHA_256.to_owned(), Ok(())),
            (format!("sha-512=:{sha_512}:"), Ok(())),
            (format!("{SHA_256}, sha-512=:{sha_512}:, md5=:AAAA:"), Ok(())),
            (format!("{SHA_256}, md5=1"), Ok(())),
            (format!("{SHA_256}, sha-512=:AAAA:"), Err(RefusalCode::BadContentDigest)),
            (other.clone(), Err(RefusalCode::BadContentDigest)),
            (format!("{other}, sha-512=:{sha_512}:"), Err(RefusalCode::BadContentDigest)),
            ("md5=:AAAA:".to_owned(), Err(RefusalCode::BadContentDigest)),
            ("sha-256=k6".to_owned(), Err(RefusalCode::BadContentDigest)),
            ("sha-256=(:AAAA:)".to_owned(), Err(RefusalCode::BadContentDigest)),
            ("sha-256=:k6I5:, ,".to_owned(), Err(RefusalCode::BadContentDigest)),
            (String::new(), Err(RefusalCode::BadContentDigest)),
        ] {
            assert_eq!(checked(Some(&digest), Content::Whole(HELLO)), expected, "{digest}");
        }
    }

    #[test]
    fn content_needs_a_digest_and_its_absence_does_not() {
        assert_eq!(checked(None, Content::Whole(b"")), Ok(()));
        assert_eq!(checked(None, Content::Whole(b"x")), Err(RefusalCode::ContentDigestRequired));
        assert_eq!(checked(Some(SHA_256), Content::Whole(b"")), Err(RefusalCode::BadContentDigest));
    }

    #[test]
    fn a_withheld_content_has_a_digest_of_the_right_form() {
        let withheld = Content::Withheld { is_empty: false };
        assert_eq!(checked(Some(SHA_256), withheld), Ok(()));
        assert_eq!(checked(Some("sha-256=:AAAA:"), withheld), Err(RefusalCode::BadContentDigest));
        assert_eq!(checked(None, withheld), Err(RefusalCode::ContentDigestRequired));
        assert_eq!(checked(None, Content::Withheld { is_empty: true }), Ok(()));
    }
}
