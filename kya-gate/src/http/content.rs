//! The contents that a proxy passes on: each bounded in length and time, all together bounded in memory.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use registry_core::gate::{Outcome, RequestFault, Unavailable};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::RECEIVE_TIMEOUT;

/// The longest content in bytes.
const LONGEST: usize = 8 << 20;
/// The most bytes of all contents together.
const MEMORY: usize = 32 << 20;
/// The least bytes of spare room for a content of unknown length.
const STEP: usize = 16 << 10;

/// A reader of contents within a shared memory limit.
#[derive(Debug)]
pub struct ContentReader {
    memory: Arc<Semaphore>,
    limit: Duration,
}

impl Default for ContentReader {
    fn default() -> Self {
        Self { memory: Arc::new(Semaphore::new(MEMORY)), limit: RECEIVE_TIMEOUT }
    }
}

/// A content, which counts against the memory until it is dropped.
#[derive(Debug, Default)]
pub(super) struct PassedContent {
    pub(super) bytes: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
}

impl ContentReader {
    /// Reads the whole content. Errors: the reason for which it was not read.
    pub(super) async fn read<B>(&self, mut body: B) -> Result<PassedContent, ContentError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (mut content, mut refusal) = (PartialContent::default(), None);
        let whole = async {
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|_| ContentError::Incomplete)?;
                // Trailers are no content. A refused content is read to its end and dropped: a proxy that is
                // still sending might not see the answer.
                if let Ok(data) = frame.into_data()
                    && refusal.is_none()
                    && let Err(refused) = content.add(&data, body.size_hint().exact(), &self.memory)
                {
                    (content, refusal) = (PartialContent::default(), Some(refused));
                }
            }
            Ok(())
        };
        let whole = timeout(self.limit, whole).await;
        let whole = whole.unwrap_or(Err(ContentError::Incomplete));
        refusal.map_or(whole, Err)?;
        Ok(PassedContent { bytes: content.bytes.into(), _memory: content.memory })
    }
}

/// The reason for which a content was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentError {
    /// It is longer than the limit.
    TooLong,
    /// It broke off, or did not end in time.
    Incomplete,
    /// The contents of other requests take all the memory.
    MemoryFull,
}

impl From<ContentError> for Outcome {
    fn from(unread: ContentError) -> Self {
        match unread {
            ContentError::TooLong => Self::Faulty(RequestFault::ContentTooLong),
            ContentError::Incomplete => Self::Faulty(RequestFault::ContentIncomplete),
            ContentError::MemoryFull => Self::Unavailable(Unavailable::ContentMemoryFull),
        }
    }
}

/// The received part of a content.
#[derive(Debug, Default)]
struct PartialContent {
    bytes: Vec<u8>,
    memory: Option<OwnedSemaphorePermit>,
}

impl PartialContent {
    /// Appends a piece. `rest` is the number of bytes that follow, where known.
    fn add(&mut self, data: &[u8], rest: Option<u64>, memory: &Arc<Semaphore>) -> Result<(), ContentError> {
        let length = self.bytes.len() + data.len();
        if length > LONGEST {
            return Err(ContentError::TooLong);
        }
        if length > self.bytes.capacity() {
            let rest =
                rest.map_or((length / 8).max(STEP), |rest| usize::try_from(rest).unwrap_or(usize::MAX));
            let capacity = length.saturating_add(rest).min(LONGEST);
            let taken = u32::try_from(capacity - self.bytes.capacity()).unwrap_or(u32::MAX);
            let taken = Arc::clone(memory).try_acquire_many_owned(taken);
            let taken = taken.map_err(|_| ContentError::MemoryFull)?;
            match &mut self.memory {
                Some(memory) => memory.merge(taken),
                None => self.memory = Some(taken),
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt as _, stream};
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use std::io;

    /// Returns a body of so many pieces of `bytes` bytes that never ends.
    fn unfinished(pieces: usize, bytes: usize) -> impl Body<Data = Bytes, Error = io::Error> + Unpin {
        let piece = Bytes::from(vec![7; bytes]);
        let pieces = stream::iter((0..pieces).map(move |_| Ok(Frame::data(piece.clone()))));
        StreamBody::new(pieces.chain(stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_content_has_a_length_a_time_and_a_share_of_the_memory_of_all() {
        let contents = ContentReader::default();
        let whole = contents.read(Full::new(Bytes::from("content"))).await.unwrap();
        assert_eq!((&whole.bytes[..], contents.memory.available_permits()), (&b"content"[..], MEMORY - 7));
        drop(whole);
        // The memory held equals the memory taken, also without a known length.
        let mut content = PartialContent::default();
        for _ in 0..100 {
            content.add(&[7; 3_000], None, &contents.memory).unwrap();
            let taken = MEMORY - contents.memory.available_permits();
            let length = content.bytes.len();
            assert!(content.bytes.capacity() == taken && taken <= length + (length / 8).max(STEP), "{taken}");
        }
        drop(content);

        let too_long = contents.read(unfinished(9, 1 << 20)).await.unwrap_err();
        assert_eq!(too_long, ContentError::TooLong);
        let late = contents.read(unfinished(1, 1)).await.unwrap_err();
        assert_eq!(late, ContentError::Incomplete);
        assert_eq!(contents.memory.available_permits(), MEMORY, "what is refused holds nothing");

        // Forty without an end, of all but a byte of 8 MiB: four of them take all the memory.
        let unfinished = (0..40).map(|_| contents.read(unfinished(8, (1 << 20) - 1)));
        let outcomes = futures_util::future::join_all(unfinished).await;
        let refused = ContentError::MemoryFull;
        let refused =
            outcomes.iter().filter(|outcome| outcome.as_ref().is_err_and(|error| *error == refused));
        assert_eq!((refused.count(), contents.memory.available_permits()), (36, MEMORY));
    }
}
