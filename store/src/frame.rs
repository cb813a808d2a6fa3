//! The packed log row: checksummed frames of all batches that one flush made durable.
//!
//! A frame is `length u32 LE, crc32 u32 LE, MessagePack of Frame`. A row is a sequence of frames. Rows are the
//! durable source of truth; documents, journals, accounts and graph rows are derived from them.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::StoreError;
use super::batch::Op;
use crate::clock::Timestamp;
use crate::principal::{Cause, PrincipalId};

/// One committed batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The time of the commit.
    pub at: Timestamp,
    /// The author.
    pub by: PrincipalId,
    /// The cause.
    pub cause: Cause,
    /// The changes, in order.
    pub ops: Arc<[Op]>,
}

const HEADER: usize = 8;

/// Appends `frame` to `row`.
///
/// # Errors
/// [`StoreError::Corrupt`] when the frame cannot be encoded. Plain data can always be encoded.
pub(super) fn encode(frame: &Frame, row: &mut BytesMut) -> Result<(), StoreError> {
    let body = rmp_serde::to_vec_named(frame)
        .map_err(|error| StoreError::Corrupt(format!("a frame does not encode: {error}")))?;
    row.reserve(HEADER + body.len());
    row.extend_from_slice(&(body.len() as u32).to_le_bytes());
    row.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
    row.extend_from_slice(&body);
    Ok(())
}

/// Decodes a row. If the end of the row is missing or damaged, returns the complete frames before the damage and
/// `false`. Such a row was never acknowledged.
///
/// # Errors
/// [`StoreError::Newer`] when a complete frame has a format that this release does not know. Such a frame was
/// acknowledged.
pub(super) fn decode(row: &Bytes) -> Result<(Vec<Frame>, bool), StoreError> {
    let mut frames = Vec::new();
    let mut rest = &row[..];
    while !rest.is_empty() {
        let Some((body, after)) = body_of(rest) else { return Ok((frames, false)) };
        let frame = rmp_serde::from_slice(body);
        frames.push(frame.map_err(|error| StoreError::Newer(format!("a commit in its log: {error}")))?);
        rest = after;
    }
    Ok((frames, true))
}

/// Returns the body of the frame at the beginning of `bytes`, if it is complete, and the bytes after it.
fn body_of(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let sum = u32::from_le_bytes(bytes.get(4..HEADER)?.try_into().ok()?);
    let body = bytes.get(HEADER..HEADER.checked_add(length)?)?;
    (crc32fast::hash(body) == sum).then_some((body, &bytes[HEADER + length..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Key, Kind};

    fn row(frames: usize) -> Bytes {
        let mut row = BytesMut::new();
        for n in 0..frames {
            let ops = vec![
                Op::Delete { key: Key::new(Kind::Meta, format!("k{n}")), expect: super::super::Expect::Version(3) },
                Op::Append { stream: "s".into(), expect: None, kind: "k".into(), data: Bytes::from_static(b"{}") },
            ];
            let frame = Frame {
                at: Timestamp::UNIX_EPOCH,
                by: PrincipalId::new("user:ada"),
                cause: Cause::of("test"),
                ops: ops.into(),
            };
            encode(&frame, &mut row).unwrap();
        }
        row.freeze()
    }

    #[test]
    fn a_row_reads_back_as_it_was_written() {
        let (frames, whole) = decode(&row(3)).unwrap();
        assert!(whole);
        assert_eq!(frames.len(), 3);
    }

    #[test]
    fn a_row_cut_at_any_byte_answers_only_whole_frames() {
        let full = row(3);
        let (all, _) = decode(&full).unwrap();
        for cut in 0..full.len() {
            let (frames, whole) = decode(&full.slice(..cut)).unwrap();
            assert_eq!(frames, all[..frames.len()]);
            assert_eq!(whole, [0, full.len() / 3, full.len() / 3 * 2].contains(&cut));
        }
    }

    #[test]
    fn a_damaged_row_keeps_its_earlier_frames_and_invents_none() {
        let full = row(2);
        let (all, _) = decode(&full).unwrap();
        for at in 0..full.len() {
            let mut torn = full.to_vec();
            torn[at] ^= 0x40;
            let (frames, whole) = decode(&Bytes::from(torn)).unwrap();
            assert!(!whole && frames == all[..frames.len()]);
        }
    }

    #[test]
    fn a_whole_frame_of_an_unknown_form_is_no_torn_one() {
        let body = rmp_serde::to_vec_named(&serde_json::json!({"at": 1, "of_tomorrow": true})).unwrap();
        let mut unknown = BytesMut::from(&row(1)[..]);
        unknown.extend_from_slice(&(body.len() as u32).to_le_bytes());
        unknown.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        unknown.extend_from_slice(&body);
        assert!(matches!(decode(&unknown.freeze()), Err(StoreError::Newer(_))));
    }
}
