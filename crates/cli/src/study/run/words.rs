//! Settings of cells as words of a command line. A comma in a value is written twice.

use std::fmt;

use weft_backend::split_path;
use weft_lab::results::{Configuration, Value};

/// Values that cells must have; a type of its own, since clap would take several values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FixedValues(pub(super) Configuration);

/// A setting, and its values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) values: Vec<Value>,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.values.iter().map(Value::as_word).collect();
        write!(f, "{}={}", self.key, values.join(","))
    }
}

pub(super) fn only(text: &str) -> Result<FixedValues, String> {
    let mut values = Configuration::new();
    for pair in parts(text).iter().filter(|pair| !pair.trim().is_empty()) {
        let (key, value) = pair_of(pair)?;
        values.insert(key.to_owned(), value_of(key, value));
    }
    Ok(FixedValues(values))
}

pub(super) fn setting(text: &str) -> Result<Setting, String> {
    let (key, values) = pair_of(text)?;
    let values = parts(values).into_iter().map(|value| value_of(key, value.trim()));
    Ok(Setting { key: key.to_owned(), values: values.collect() })
}

/// What is between commas.
fn parts(text: &str) -> Vec<String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        let (part, behind) = split_path(rest);
        parts.push(part.to_string_lossy().into_owned());
        if behind.is_empty() {
            return parts;
        }
        rest = behind;
    }
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
        // `inf` is a word.
        (None, Err(_)) => match value.parse::<f64>() {
            Ok(number) if value.starts_with(|c: char| c.is_ascii_digit()) => Value::from(number),
            _ => Value::from(value),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_selected_by_values() {
        let FixedValues(values) = only("block_bytes=4k, depth=16,transport=tcp").expect("values");
        assert_eq!(values["block_bytes"], Value::Integer(4096));
        assert_eq!(values["depth"], Value::Integer(16));
        assert_eq!(values["transport"], Value::from("tcp"));
        let FixedValues(values) =
            only("loss_percent=0.1,governor=inf,irq_cpus=0-3").expect("values");
        assert_eq!(values["loss_percent"], Value::from(0.1));
        assert_eq!(values["governor"], Value::from("inf"));
        assert_eq!(values["irq_cpus"], Value::from("0-3"));
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
        let text = "device=file:/srv/a,,size=1GiB,memory:1GiB";
        let set = setting(text).expect("a setting");
        assert_eq!(set.values.len(), 2);
        assert_eq!(set.values[0], Value::from("file:/srv/a,size=1GiB"));
        assert_eq!(set.to_string(), text);
        let FixedValues(values) = only("device=file:/srv/a,,size=1GiB,depth=1").expect("values");
        assert_eq!(values["device"], set.values[0]);
        assert_eq!(values["depth"], Value::Integer(1));
    }
}
