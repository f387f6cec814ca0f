//! The colours and dashes of series.

use super::figure::Style;
use crate::{
    cells::Cell,
    results::{Value, key},
};

/// The transports by colour. Where none are told apart other values have these colours.
const TRANSPORTS: [&str; 5] = ["local", "tcp", "tcp-link", "rdma", "loopback"];

/// Assigns colours and dashes. In all charts of a study a transport has the same colour, and a
/// value of another setting the same dash, or the same colour where no transports are told apart.
pub(super) struct Styles<'a> {
    keys: &'a [String],
    /// The values of the other settings in the study.
    others: Vec<Vec<Option<&'a Value>>>,
}

impl<'a> Styles<'a> {
    pub(super) fn new(keys: &'a [String], cells: impl Iterator<Item = &'a Cell>) -> Self {
        let mut styles = Self { keys, others: Vec::new() };
        for cell in cells {
            let values = styles.values(cell);
            if !styles.others.contains(&values) {
                styles.others.push(values);
            }
        }
        styles
    }

    fn values<'c>(&self, cell: &'c Cell) -> Vec<Option<&'c Value>> {
        let others = self.keys.iter().filter(|key| *key != key::TRANSPORT);
        others.map(|key| cell.value(key)).collect()
    }

    pub(super) fn of(&self, cell: Option<&Cell>) -> Style {
        let Some(cell) = cell.filter(|_| !self.keys.is_empty()) else { return Style::FIRST };
        let values = self.values(cell);
        let place = self.others.iter().position(|known| *known == values).unwrap_or_default();
        if !self.keys.iter().any(|key| key == key::TRANSPORT) {
            return Style { colour: place % TRANSPORTS.len(), dash: place / TRANSPORTS.len() };
        }
        let name = cell.text(key::TRANSPORT);
        let colour = TRANSPORTS.iter().position(|known| *known == name).unwrap_or_default();
        Style { colour, dash: place }
    }
}
