//! Requests and responses of JSON-RPC 2.0.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The identifier of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Id {
    /// A number.
    Number(serde_json::Number),
    /// A string.
    Text(String),
    /// None: in a response to an unreadable request.
    Null,
}

/// A request. Without `id`, or with null, it is a notification: only errors get a response.
#[derive(Clone, Default, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// `2.0`, or absent, which SPDK allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jsonrpc: Option<String>,
    /// The method's name.
    pub method: String,
    /// The parameters.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub params: Value,
    /// The identifier that the response repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// The protocol's version.
pub(crate) const VERSION: &str = "2.0";

/// A response: a result or an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// `2.0`.
    pub jsonrpc: String,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
    /// The identifier of the request.
    pub id: Id,
}

impl Response {
    /// A response to the request with this `id`.
    #[must_use]
    pub fn new(id: Id, outcome: Result<Value, ErrorObject>) -> Self {
        let (result, error) = match outcome {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        Self { jsonrpc: VERSION.to_owned(), result, error, id }
    }
}

/// An error object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// The kind of error.
    pub code: Code,
    /// A sentence that describes it.
    pub message: String,
}

impl ErrorObject {
    /// An error of this kind, with this sentence.
    #[must_use]
    pub fn new(code: Code, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }
}

impl fmt::Display for ErrorObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code.0)
    }
}

impl std::error::Error for ErrorObject {}

/// An error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Code(pub i64);

impl Code {
    /// The message is not JSON.
    pub const PARSE_ERROR: Self = Self(-32_700);
    /// The message is not a request.
    pub const INVALID_REQUEST: Self = Self(-32_600);
    /// The method does not exist.
    pub const METHOD_NOT_FOUND: Self = Self(-32_601);
    /// The method has other parameters.
    pub const INVALID_PARAMS: Self = Self(-32_602);
    /// The server failed.
    pub const INTERNAL_ERROR: Self = Self(-32_603);
    /// The method failed.
    pub const FAILED: Self = Self(-32_000);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Option<Request> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn requests_follow_the_specification() {
        // From the examples of the JSON-RPC 2.0 specification.
        let text = r#"{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}"#;
        let one = request(text).expect("a request");
        assert_eq!((one.method.as_str(), one.id), ("subtract", Some(Id::Number(1.into()))));
        let text = r#"{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}"#;
        assert_eq!(request(text).expect("a notification").id, None);
        let text = r#"{"jsonrpc": "2.0", "method": "x", "id": null}"#;
        assert_eq!(request(text).expect("a notification").id, None);
        let text = r#"{"jsonrpc": "2.0", "method": "x", "id": "a"}"#;
        assert_eq!(request(text).expect("a request").id, Some(Id::Text("a".to_owned())));
        for bad in [r#"{"jsonrpc": "2.0", "method": 1, "params": "bar"}"#, "[]", "1", "{}"] {
            assert_eq!(request(bad), None, "{bad}");
        }
    }

    #[test]
    fn responses_carry_a_result_or_an_error() {
        let good = Response::new(Id::Number(1.into()), Ok(19.into()));
        let text = serde_json::to_string(&good).expect("a text");
        assert_eq!(text, r#"{"jsonrpc":"2.0","result":19,"id":1}"#);
        let error = ErrorObject::new(Code::METHOD_NOT_FOUND, "Method not found");
        let bad = Response::new(Id::Text("1".to_owned()), Err(error));
        let text = serde_json::to_string(&bad).expect("a text");
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":"1"}"#
        );
        assert_eq!(serde_json::from_str::<Response>(&text).expect("a response"), bad);
    }
}
