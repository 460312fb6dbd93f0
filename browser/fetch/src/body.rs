//! Size-capped reading of the body of a request or a response.

use js_sys::{Function, JSON, Promise, Reflect, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

#[wasm_bindgen]
extern "C" {
    /// A `Request`, a `Response`, or a look-alike.
    type HttpMessage;

    #[wasm_bindgen(method, getter)]
    fn body(this: &HttpMessage) -> JsValue;

    #[wasm_bindgen(method, catch, js_name = arrayBuffer)]
    fn array_buffer(this: &HttpMessage) -> Result<Promise, JsValue>;

    /// A reader of a stream of bytes. The default reader ignores the arguments of `read`.
    type StreamReader;

    #[wasm_bindgen(method, catch)]
    fn read(this: &StreamReader, buffer: &JsValue, options: &JsValue) -> Result<Promise, JsValue>;
}

/// The reader of a `ReadableStream`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyReader {
    /// The default reader, which every stream has.
    Default,
    /// A BYOB reader, which only byte streams have. All pieces are read into one buffer, which is handed over
    /// and back, and replaced by a larger one while there is more: in a Worker, each read leaves kilobytes of
    /// objects behind until V8 collects all.
    Byob,
}

/// The bytes that a BYOB reader reads at once: at first, and at most.
const PIECE_BYTES: [u32; 2] = [32 * 1024, 512 * 1024];

/// Reads the body of a `Request` or `Response`; `None` where it is larger than `max_bytes`. Errors: any value
/// that the stream throws, such as for a body that breaks off.
pub async fn read(
    message: &JsValue,
    max_bytes: usize,
    reader: BodyReader,
) -> Result<Option<Vec<u8>>, JsValue> {
    let message: &HttpMessage = message.unchecked_ref();
    let stream = message.body();
    let get_reader = Reflect::get(&stream, &"getReader".into()).unwrap_or(JsValue::UNDEFINED);
    let Ok(get_reader) = get_reader.dyn_into::<Function>() else {
        // There is no body, or it is from a page's own `fetch`, which need not return streams.
        let body = Uint8Array::new(&JsFuture::from(message.array_buffer()?).await?);
        return Ok((body.length() as usize <= max_bytes).then(|| body.to_vec()));
    };
    let mode = match reader {
        BodyReader::Default => JsValue::UNDEFINED,
        BodyReader::Byob => JSON::parse(r#"{"mode":"byob"}"#)?,
    };
    collect(&get_reader.call1(&stream, &mode)?.unchecked_into(), max_bytes, reader).await
}

async fn collect(
    stream: &StreamReader,
    max_bytes: usize,
    reader: BodyReader,
) -> Result<Option<Vec<u8>>, JsValue> {
    let [mut size, most] = PIECE_BYTES;
    let mut buffer = match reader {
        BodyReader::Default => JsValue::UNDEFINED,
        BodyReader::Byob => Uint8Array::new_with_length(size).into(),
    };
    // The first read takes any bytes: a reply that is too large already need not be awaited.
    let mut options = JSON::parse(r#"{"min":1}"#)?;
    let (value, done) = (JsValue::from("value"), JsValue::from("done"));
    let mut body = Vec::new();
    loop {
        let read = JsFuture::from(stream.read(&buffer, &options)?).await?;
        if Reflect::get(&read, &done)?.is_truthy() {
            return Ok(Some(body));
        }
        let piece = Reflect::get(&read, &value)?;
        let piece = piece.dyn_into().unwrap_or_else(|other| Uint8Array::new(&other));
        let (begin, length) = (body.len(), piece.length() as usize);
        if begin.saturating_add(length) > max_bytes {
            return Ok(None);
        }
        body.resize(begin + length, 0);
        if let Some(end) = body.get_mut(begin..) {
            piece.copy_to(end);
        }
        if reader == BodyReader::Default {
            continue;
        }
        if size < most && body.len() >= size as usize {
            size *= 4;
            buffer = Uint8Array::new_with_length(size).into();
            options = JSON::parse(&format!(r#"{{"min":{size}}}"#))?;
        } else {
            buffer = Uint8Array::new(&piece.buffer()).into();
        }
    }
}
