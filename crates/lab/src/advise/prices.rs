//! What a way costs.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Deserialize;
use weft_backend::nearest;

use super::answer::Row;
use crate::results::{key, text};
use crate::study::given::{protocol, protocol_name};

/// Prices, all in one currency and for one time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Of what, in words: `EUR a month`.
    pub currency: String,
    /// A processor of the host.
    pub host_core: f64,
    /// A processor of the target.
    pub target_core: f64,
    /// The ports at both ends and what is between them, by the transport.
    #[serde(default)]
    pub port: BTreeMap<String, f64>,
}

/// No price is higher.
const PRICE_MAX: f64 = 1e12;

/// Transports that have ports.
const PORTS: [&str; 2] = ["tcp", "rdma"];

impl FromStr for Prices {
    type Err = String;

    fn from_str(file: &str) -> Result<Self, String> {
        let prices: Self = toml::from_str(file).map_err(|error| error.message().to_owned())?;
        let cores = [("host_core", prices.host_core), ("target_core", prices.target_core)];
        let ports = prices.port.iter().map(|(name, price)| (name.as_str(), *price));
        for (name, price) in cores.into_iter().chain(ports) {
            if !(0.0..=PRICE_MAX).contains(&price) {
                return Err(format!("{name}: {price} is no price (0 to {PRICE_MAX:e})"));
            }
        }
        let is_shown = |text: &str| text.chars().count() <= 40 && !text.contains(char::is_control);
        if !is_shown(&prices.currency) {
            return Err("currency: expected at most 40 characters in a line".to_owned());
        }
        if let Some(name) = prices.port.keys().find(|name| !PORTS.contains(&name.as_str())) {
            let near = nearest(name, PORTS).unwrap_or("tcp or rdma");
            return Err(format!("port: {name:?} is no transport, did you mean {near}?"));
        }
        Ok(prices)
    }
}

impl Prices {
    /// What the processors of a way cost; none where they are not known.
    pub(super) fn of_cores(&self, row: &Row) -> Option<f64> {
        let [host, target] = row.processors;
        let target = if row.is_local() { 0.0 } else { target? };
        Some(self.host_core * host? + self.target_core * target)
    }

    /// What its ports cost: nothing within a machine, and none where it is not said.
    pub(super) fn of_port(&self, row: &Row) -> Option<f64> {
        match port(row) {
            Some(name) => self.port.get(name).copied(),
            None => Some(0.0),
        }
    }

    /// Puts the price of a way into its row, or why it has none.
    pub(super) fn put(&self, row: &mut Row) {
        row.money = self.of_cores(row).zip(self.of_port(row)).map(|(cores, port)| cores + port);
        let known = row.processors[0].is_some() && row.money.is_none();
        let why = match (known, self.of_port(row)) {
            (false, _) => return,
            (true, None) => format!("no price: {} has none under [port]", port(row).unwrap_or("-")),
            (true, Some(_)) => {
                "no price: the target does not say what its processors do".to_owned()
            }
        };
        row.notes.push(why);
    }
}

/// The transport whose ports a way takes.
pub(super) fn port(row: &Row) -> Option<&'static str> {
    let name = protocol(text(&row.configuration, key::TRANSPORT)).map(protocol_name)?;
    PORTS.into_iter().find(|known| *known == name)
}

#[cfg(test)]
mod tests;
