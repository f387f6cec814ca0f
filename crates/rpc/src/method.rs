//! Methods, defined once for client and server.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::caller::Caller;
use crate::message::{Code, ErrorObject};

/// A method: its name, parameters and reply.
pub trait Method {
    /// Its name on the wire.
    const NAME: &'static str;
    /// The parameters; `()` if there are none.
    type Params: Serialize + DeserializeOwned;
    /// The reply.
    type Answer: Serialize + DeserializeOwned;
}

type Handler = Box<dyn Fn(&Caller, Value) -> Result<Value, ErrorObject> + Send + Sync>;

/// The methods of a server.
#[derive(Default)]
pub struct Methods {
    handlers: BTreeMap<&'static str, Handler>,
}

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.handlers.keys()).finish()
    }
}

impl Methods {
    /// No methods.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a method. An error of the handler reaches the caller as [`Code::FAILED`].
    #[must_use]
    pub fn with<M: Method>(
        mut self,
        handler: impl Fn(M::Params) -> Result<M::Answer, String> + Send + Sync + 'static,
    ) -> Self {
        let handler = move |_: &Caller, params: Value| {
            let params = serde_json::from_value(params)
                .map_err(|error| ErrorObject::new(Code::INVALID_PARAMS, error))?;
            let answer = handler(params).map_err(|what| ErrorObject::new(Code::FAILED, what))?;
            serde_json::to_value(answer)
                .map_err(|error| ErrorObject::new(Code::INTERNAL_ERROR, error))
        };
        self.handlers.insert(M::NAME, Box::new(handler));
        self
    }

    /// Adds a method whose parameters and errors are its own matter, such as one that follows
    /// another program's definition, and which is told who calls.
    #[must_use]
    pub fn with_named(
        mut self,
        name: &'static str,
        handler: impl Fn(&Caller, Value) -> Result<Value, ErrorObject> + Send + Sync + 'static,
    ) -> Self {
        self.handlers.insert(name, Box::new(handler));
        self
    }

    /// The names of the methods.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.handlers.keys().copied()
    }

    /// Calls a method by its name.
    ///
    /// # Errors
    /// The method does not exist, has other parameters, or fails.
    pub fn call(&self, caller: &Caller, name: &str, params: Value) -> Result<Value, ErrorObject> {
        let Some(handler) = self.handlers.get(name) else {
            let what = format!("Method not found: {name:?} (rpc_get_methods lists what there is)");
            return Err(ErrorObject::new(Code::METHOD_NOT_FOUND, what));
        };
        // No parameters may be given as nothing, `[]` or `{}`.
        let empty = match &params {
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        handler(caller, if empty { Value::Null } else { params })
    }
}
