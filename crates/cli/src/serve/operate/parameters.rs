//! The parameters of a method of SPDK.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use weft_rpc::{Code, ErrorObject};

/// Parameters that are taken one after the other. What is left at the end is unknown, unless it is
/// `false`: SPDK's client sends every switch that is off.
#[derive(Debug)]
pub(in crate::serve) struct Params {
    map: Map<String, Value>,
    code: Code,
}

impl Params {
    /// The parameters of a method of the group `nvmf`, and of most others.
    pub(in crate::serve) fn of(params: Value) -> Result<Self, ErrorObject> {
        Self::with_code(params, Code::INVALID_PARAMS)
    }

    /// The same for the group `bdev`, whose errors in parameters have another code.
    pub(super) fn of_bdev(params: Value) -> Result<Self, ErrorObject> {
        Self::with_code(params, Code::INTERNAL_ERROR)
    }

    fn with_code(params: Value, code: Code) -> Result<Self, ErrorObject> {
        match params {
            Value::Null => Ok(Self { map: Map::new(), code }),
            Value::Object(map) => Ok(Self { map, code }),
            _ => Err(ErrorObject::new(code, "Invalid parameters: give them by name")),
        }
    }

    /// A parameter, if it is given.
    pub(in crate::serve) fn take<T: DeserializeOwned>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, ErrorObject> {
        match self.map.shift_remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|error| self.error(format_args!("{name}: {error}"))),
        }
    }

    /// A parameter that must be given.
    pub(in crate::serve) fn need<T: DeserializeOwned>(
        &mut self,
        name: &str,
    ) -> Result<T, ErrorObject> {
        self.take(name)?.ok_or_else(|| self.error(format_args!("{name} is missing")))
    }

    /// A parameter read from a text.
    pub(super) fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, ErrorObject> {
        let Some(text) = self.take::<String>(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error| self.error(format_args!("{name}: {error}")))
    }

    /// An object within these parameters.
    pub(super) fn object(&mut self, name: &str) -> Result<Self, ErrorObject> {
        Self::with_code(self.need(name)?, self.code)
    }

    /// Parameters without meaning here.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.map.shift_remove(*name);
        }
    }

    /// Parameters that ask for what there is not: only a value that asks for nothing is accepted.
    pub(super) fn refuse(&mut self, names: &[&str]) -> Result<(), ErrorObject> {
        for name in names {
            if self.map.shift_remove(*name).is_some_and(|value| asks(&value)) {
                return Err(self.error(format_args!("{name} is not supported; leave it out")));
            }
        }
        Ok(())
    }

    /// A parameter of which only this word is possible.
    pub(super) fn only(&mut self, name: &str, word: &str) -> Result<(), ErrorObject> {
        match self.take::<String>(name)? {
            Some(other) if other != word => {
                Err(self.error(format_args!("{name} {other:?} is not supported; leave it out")))
            }
            _ => Ok(()),
        }
    }

    /// All were taken.
    pub(in crate::serve) fn end(self) -> Result<(), ErrorObject> {
        let unknown = self.map.iter().find(|(_, value)| **value != Value::Bool(false));
        match unknown {
            None => Ok(()),
            Some((name, _)) => Err(self.error(format_args!("{name} is unknown; leave it out"))),
        }
    }

    /// An error in them.
    pub(super) fn error(&self, what: impl std::fmt::Display) -> ErrorObject {
        ErrorObject::new(self.code, format!("Invalid parameters: {what}"))
    }
}

/// Whether a value asks for anything.
fn asks(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Bool(true) => true,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(all) => all.values().any(asks),
    }
}
