//! The parameters of a method of SPDK.

use std::borrow::Cow;

use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::{Deserializer, Serialize};
use serde_json::{Map, Value};
use weft_backend::nearest;
use weft_rpc::{Code, ErrorObject};
use weft_target::config::replaced_key;

/// Parameters that are taken one after the other. What is left at the end is unknown, unless it is
/// `false`: SPDK's client sends every switch that is off.
#[derive(Debug)]
pub(in crate::serve) struct Params {
    map: Map<String, Value>,
    code: Code,
    /// The names that were asked for, each with the one that the configuration has for it.
    known: Vec<(String, String)>,
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
            Value::Null => Ok(Self { map: Map::new(), code, known: Vec::new() }),
            Value::Object(map) => Ok(Self { map, code, known: Vec::new() }),
            _ => Err(ErrorObject::new(code, "Invalid parameters: give them by name")),
        }
    }

    /// A parameter, if it is given.
    pub(in crate::serve) fn take<T: DeserializeOwned>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, ErrorObject> {
        self.known.push((name.to_owned(), name.to_owned()));
        match self.map.shift_remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|error| self.error(format_args!("{name}: {error}"))),
        }
    }

    /// Whether a parameter is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|value| !value.is_null())
    }

    /// The names of those that are left.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.map.keys().map(String::as_str)
    }

    /// A parameter that must be given.
    pub(in crate::serve) fn need<T: DeserializeOwned>(
        &mut self,
        name: &str,
    ) -> Result<T, ErrorObject> {
        let taken = self.take(name)?;
        let left = || self.map.keys().filter(|left| nearest(left, [name]).is_some());
        taken.ok_or_else(|| match left().next() {
            Some(left) => self.error(format_args!("{left} is unknown, did you mean {name}?")),
            None => self.error(format_args!("{name} is missing")),
        })
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

    /// An object of the configuration: `base` with the parameters that are keys of it. Those with
    /// other names than the keys are in `renamed`.
    pub(super) fn object_of<T: Serialize + DeserializeOwned>(
        &mut self,
        renamed: Renames,
        base: &T,
    ) -> Result<T, ErrorObject> {
        let Ok(Value::Object(mut object)) = serde_json::to_value(base) else {
            return Err(self.error("the object cannot be written"));
        };
        let mut read = serde_json::from_value(object.clone().into());
        for key in keys_of::<T>() {
            let Some(name) = name_of(renamed, key) else { continue };
            self.known.push((name.to_string(), key.replace('-', "_")));
            if let Some(value) = self.map.shift_remove(&*name).filter(|value| !value.is_null()) {
                object.insert((*key).to_owned(), value);
                read = serde_json::from_value(object.clone().into());
                if let Err(error) = &read {
                    return Err(self.error(format_args!("{name}: {error}")));
                }
            }
        }
        read.map_err(|error| self.error(error))
    }

    /// Parameters without meaning here.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.map.shift_remove(*name);
        }
    }

    /// As in SPDK, parameters that were not taken are not looked at.
    pub(super) fn ignore_others(&mut self) {
        self.map.clear();
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
            Some((name, _)) => {
                let own = self.known.iter().find(|(_, key)| key == name);
                let known = self.known.iter().map(|(name, _)| name.as_str());
                let meant = own.map(|(name, _)| name.as_str()).or_else(|| nearest(name, known));
                Err(self.error(match (replaced_key(name), meant) {
                    (Some(instead), _) => instead,
                    (None, Some(meant)) => format!("{name} is unknown, did you mean {meant}?"),
                    (None, None) => format!("{name} is unknown; leave it out"),
                }))
            }
        }
    }

    /// An error in them.
    pub(super) fn error(&self, what: impl std::fmt::Display) -> ErrorObject {
        ErrorObject::new(self.code, format!("Invalid parameters: {what}"))
    }
}

/// Pairs of a parameter and a key of the configuration, for those whose names differ by more than
/// underscores in place of hyphens. A key with an empty name is no parameter.
pub(super) type Renames = &'static [(&'static str, &'static str)];

/// The name of the parameter for a key.
fn name_of<'a>(renamed: Renames, key: &'a str) -> Option<Cow<'a, str>> {
    match renamed.iter().find(|(_, of)| *of == key) {
        None => Some(key.replace('-', "_").into()),
        Some((name, _)) => Some(Cow::from(*name)).filter(|name| !name.is_empty()),
    }
}

/// An object of the configuration as the parameters that make it.
pub(super) fn parameters_of(object: &impl Serialize, renamed: Renames) -> Map<String, Value> {
    let Ok(Value::Object(keys)) = serde_json::to_value(object) else { return Map::new() };
    let named = |(key, value): (String, Value)| Some((name_of(renamed, &key)?.into_owned(), value));
    keys.into_iter().filter_map(named).collect()
}

/// The keys that a type of the configuration has.
fn keys_of<T: DeserializeOwned>() -> &'static [&'static str] {
    struct Keys<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Keys<'_> {
        type Error = serde::de::value::Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(Self::Error::custom("no struct"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = fields;
            self.deserialize_any(visitor)
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
            option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
            ignored_any
        }
    }

    let mut keys: &[&str] = &[];
    // It always fails: only the keys are looked at.
    drop(T::deserialize(Keys(&mut keys)));
    keys
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
