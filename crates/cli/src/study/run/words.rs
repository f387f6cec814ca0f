//! Settings of cells as words of a command line.

use std::fmt;

use weft_lab::results::{Configuration, Value};

/// Values that cells must have; a type of its own, since clap would take several values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Only(pub(super) Configuration);

/// A setting, and its values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) values: Vec<Value>,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.values.iter().map(ToString::to_string).collect();
        write!(f, "{}={}", self.key, values.join(","))
    }
}

pub(super) fn only(text: &str) -> Result<Only, String> {
    let mut values = Configuration::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (key, value) = pair_of(pair)?;
        values.insert(key.to_owned(), value_of(key, value));
    }
    Ok(Only(values))
}

pub(super) fn setting(text: &str) -> Result<Setting, String> {
    let (key, values) = pair_of(text)?;
    let values = values.split(',').map(|value| value_of(key, value.trim()));
    Ok(Setting { key: key.to_owned(), values: values.collect() })
}

fn pair_of(text: &str) -> Result<(&str, &str), String> {
    let pair = text.split_once('=');
    let (key, value) = pair.ok_or_else(|| format!("{text:?} is not of the form KEY=VALUE"))?;
    Ok((key.trim(), value.trim()))
}

/// A size, a number or a word.
fn value_of(key: &str, value: &str) -> Value {
    let size = key.ends_with("_bytes").then(|| weft_backend::bytes::parse(value).ok()).flatten();
    match (size, value.parse::<u64>()) {
        (Some(size), _) => Value::Integer(size),
        (None, Ok(number)) => Value::Integer(number),
        (None, Err(_)) => Value::from(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_selected_by_values() {
        let Only(values) = only("block_bytes=4k, depth=16,transport=tcp").expect("values");
        assert_eq!(values["block_bytes"], Value::Integer(4096));
        assert_eq!(values["depth"], Value::Integer(16));
        assert_eq!(values["transport"], Value::from("tcp"));
        assert!(only("depth").is_err());
    }

    #[test]
    fn settings_have_one_value_or_several() {
        let set = setting("block_bytes=4k,1MiB").expect("a setting");
        assert_eq!(set.values, [Value::Integer(4096), Value::Integer(1 << 20)]);
        assert_eq!(set.to_string(), "block_bytes=4096,1048576");
        let set = setting("transport=tcp@eth1g").expect("a setting");
        assert_eq!((set.key.as_str(), set.values.len()), ("transport", 1));
        assert!(setting("depth").is_err());
    }
}
