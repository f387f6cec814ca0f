//! A structure as a list of named values, with nvme-cli's names.

use serde_json::Value;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// Whether it is displayed in hexadecimal.
    pub(crate) is_code: bool,
    /// Its meaning, if the number alone does not show it.
    pub(crate) meaning: String,
}

/// A value without further explanation.
pub(crate) fn plain(name: &'static str, value: impl Into<Value>) -> Field {
    meaning(name, value, "")
}

/// A value and what it means.
pub(crate) fn meaning(
    name: &'static str,
    value: impl Into<Value>,
    meaning: impl Into<String>,
) -> Field {
    Field { name, value: value.into(), is_code: false, meaning: meaning.into() }
}

/// A code or bits: a number in JSON, hexadecimal in text.
pub(crate) fn code(name: &'static str, value: impl Into<u64>) -> Field {
    code_meaning(name, value, "")
}

/// A code or bits, with their meaning.
pub(crate) fn code_meaning(
    name: &'static str,
    value: impl Into<u64>,
    meaning: impl Into<String>,
) -> Field {
    Field { is_code: true, ..self::meaning(name, value.into(), meaning) }
}

/// A value of 128 bits: a number if JSON readers can represent it, else a string.
pub(crate) fn wide(name: &'static str, value: u128) -> Field {
    let value = u64::try_from(value).map_or_else(|_| Value::from(value.to_string()), Value::from);
    plain(name, value)
}

impl Field {
    /// The value as text; empty for a structure, whose meaning is shown instead.
    pub(crate) fn shown(&self) -> String {
        match &self.value {
            Value::Number(number) if self.is_code => {
                number.as_u64().map_or_else(|| number.to_string(), |number| format!("{number:#x}"))
            }
            Value::String(text) => text.clone(),
            Value::Array(_) | Value::Object(_) => String::new(),
            other => other.to_string(),
        }
    }
}

/// The fields, a line each.
pub(crate) fn human(fields: &[Field]) -> String {
    let width = fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for field in fields {
        let (name, shown, meaning) = (field.name, field.shown(), &field.meaning);
        text += &match (shown.is_empty(), meaning.is_empty()) {
            (_, true) => format!("{name:<width$} : {shown}\n"),
            (true, false) => format!("{name:<width$} : {meaning}\n"),
            (false, false) => format!("{name:<width$} : {shown}  ({meaning})\n"),
        };
    }
    text
}

/// The fields as a JSON object.
pub(crate) fn json(fields: Vec<Field>) -> Value {
    Value::Object(fields.into_iter().map(|field| (field.name.to_owned(), field.value)).collect())
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The names of the bits that are set, or "none".
pub(crate) fn names(bits: &[(bool, &str)]) -> String {
    let set: Vec<&str> = bits.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_lines_and_json() {
        let fields = vec![
            plain("sn", "WEFT0001"),
            meaning("mdts", 8, "1 MiB"),
            wide("small", 5),
            wide("large", u128::MAX),
            code("cap", 0x1_0000u32),
            code_meaning("oncs", 0x9cu16, "verify"),
            meaning("lbafs", serde_json::json!([{ "ds": 12 }]), "4096 bytes"),
        ];
        assert_eq!(
            human(&fields),
            "sn    : WEFT0001\nmdts  : 8  (1 MiB)\nsmall : 5\n\
             large : 340282366920938463463374607431768211455\n\
             cap   : 0x10000\noncs  : 0x9c  (verify)\nlbafs : 4096 bytes\n"
        );
        let json = json(fields);
        assert_eq!((&json["mdts"], &json["small"]), (&Value::from(8), &Value::from(5)));
        assert!(json["large"].is_string());
        assert_eq!((&json["cap"], &json["lbafs"][0]["ds"]), (&0x1_0000.into(), &12.into()));
        assert_eq!(hex(&[0, 0xaf]), "00af");
        assert_eq!(names(&[(true, "a"), (false, "b"), (true, "c")]), "a, c");
        assert_eq!(names(&[(false, "b")]), "none");
    }
}
