//! Methods, described once for both ends.

use std::{collections::BTreeMap, fmt};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::message::{Code, Fault};

/// A method: its name, what it takes, what it answers.
pub trait Method {
    /// Its name on the wire.
    const NAME: &'static str;
    /// What it takes; `()` for nothing.
    type Params: Serialize + DeserializeOwned;
    /// What it answers.
    type Answer: Serialize + DeserializeOwned;
}

type Handler = Box<dyn Fn(Value) -> Result<Value, Fault> + Send + Sync>;

/// The methods that a server answers.
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
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers this one, too. What the handler says when it cannot reaches the caller as
    /// [`Code::FAILED`].
    #[must_use]
    pub fn with<M: Method>(
        mut self,
        handler: impl Fn(M::Params) -> Result<M::Answer, String> + Send + Sync + 'static,
    ) -> Self {
        let handler = move |params: Value| {
            let params = serde_json::from_value(params)
                .map_err(|error| Fault::new(Code::INVALID_PARAMS, error))?;
            let answer = handler(params).map_err(|what| Fault::new(Code::FAILED, what))?;
            serde_json::to_value(answer).map_err(|error| Fault::new(Code::INTERNAL_ERROR, error))
        };
        self.handlers.insert(M::NAME, Box::new(handler));
        self
    }

    /// Calls one by its name.
    ///
    /// # Errors
    /// There is none of this name, it takes something else, or it cannot do what is asked.
    pub fn call(&self, name: &str, params: Value) -> Result<Value, Fault> {
        let Some(handler) = self.handlers.get(name) else {
            let known: Vec<&str> = self.handlers.keys().copied().collect();
            let what = format!("there is no method {name:?}; there are {}", known.join(", "));
            return Err(Fault::new(Code::METHOD_NOT_FOUND, what));
        };
        // Nothing, `[]` and `{}` are all ways of giving no parameters.
        let empty = match &params {
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        handler(if empty { Value::Null } else { params })
    }
}
