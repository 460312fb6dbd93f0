//! Access to the object that keeps the index of this chain and registry.
//!
//! The read API's Worker asks it, and so does its own Worker, which looks after its alarm.

use std::cell::Cell;

use registry_core::index::protocol::{
    IndexAnswer, IndexQuestion, IndexRequest, OtherVersion, PROTOCOL_VERSION, VERSION_HEADER, check_version,
};
use worker::{
    Env, ObjectNamespace, Result, console_warn,
    js_sys::{Object, Reflect},
    web_sys::Response,
};

use crate::{
    binding,
    settings::{INDEX_BINDING, IndexMode, WorkerSettings},
};

/// The object of a chain and registry.
#[derive(Debug)]
pub struct IndexObject {
    objects: ObjectNamespace,
    name: String,
    location: Option<&'static str>,
}

impl IndexObject {
    /// Returns the object, where the settings and the bindings provide an index.
    pub fn of(settings: &WorkerSettings, env: &Env) -> Option<Self> {
        Self::named(settings.index_name()?, settings, env)
    }

    /// Returns the objects of indexes of earlier formats, the latest first.
    pub fn earlier(settings: &WorkerSettings, env: &Env) -> Vec<Self> {
        let names = settings.earlier_index_names().into_iter().flatten();
        names.filter_map(|name| Self::named(name, settings, env)).collect()
    }

    fn named(name: String, settings: &WorkerSettings, env: &Env) -> Option<Self> {
        match settings.index_mode {
            IndexMode::Off => None,
            IndexMode::DurableObject => {
                let objects = env.durable_object(INDEX_BINDING).ok()?;
                Some(Self { objects, name, location: settings.index_location })
            }
        }
    }

    /// Sends a question; the response is a document, a part of the snapshot, or an [`IndexAnswer`]. Errors:
    /// the object's exception, every status but 200, and a response of another version of the protocol.
    pub async fn post(&self, question: IndexQuestion) -> Result<Response> {
        let object = match self.location {
            // The hint counts only when the object is created: later the object stays where it is.
            Some(hint) => self.objects.get_by_name_with_location_hint(&self.name, hint)?,
            None => self.objects.get_by_name(&self.name)?,
        };
        let init = binding::json(&IndexRequest { object: self.name.clone(), question })?;
        let headers = Object::new();
        Reflect::set(&headers, &VERSION_HEADER.into(), &PROTOCOL_VERSION.to_string().into())?;
        init.set_headers(&headers);
        let response = binding::call(object, &init).await?;
        // Status and body have a meaning only in this version.
        if let Err(other) = check_version(response.headers().get(VERSION_HEADER)?.as_deref()) {
            warn_of_other_version("index unavailable", &other);
            return Err(other.to_string().into());
        }
        binding::ok(response)
    }

    /// Asks a question that is answered by neither a document nor a part of the snapshot. Errors: those of
    /// [`post`](Self::post), and another answer.
    pub async fn ask(&self, question: IndexQuestion) -> Result<IndexAnswer> {
        binding::from_json(&self.post(question).await?).await
    }
}

thread_local! {
    static HAS_WARNED: Cell<bool> = const { Cell::new(false) };
}

/// Logs that the other Worker has another version of the protocol, once per instance.
pub fn warn_of_other_version(consequence: &str, other: &OtherVersion) {
    if !HAS_WARNED.replace(true) {
        console_warn!("{consequence}: {other}. Deploy both Workers");
    }
}
