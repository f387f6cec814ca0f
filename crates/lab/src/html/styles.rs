//! The colours and dashes of series.

use super::figure::Style;
use crate::cells::{Cell, Cells};
use crate::results::{Value, key};
use crate::study::plan::Plot;

/// The transports by colour. Where none are told apart other values have these colours.
const TRANSPORTS: [&str; 5] = ["local", "tcp", "tcp-link", "rdma", "loopback"];

/// Assigns colours and dashes. In all charts of a study a transport has the same colour, and a
/// value of another setting the same dash, or the same colour where no transports are told apart.
pub(super) struct Styles<'a> {
    keys: &'a [String],
    /// The values of the other settings in the study.
    others: Vec<Vec<Option<&'a Value>>>,
    /// The transports over named links, and the colours that no other transport has.
    named: Vec<&'a str>,
    free: Vec<usize>,
    /// Styles that are taken.
    first: usize,
}

impl<'a> Styles<'a> {
    pub(super) fn new(keys: &'a [String], cells: &'a Cells, first: usize) -> Self {
        let mut all: Vec<&str> = cells.cells.iter().map(|cell| cell.text(key::TRANSPORT)).collect();
        all.sort_unstable();
        all.dedup();
        let free = TRANSPORTS.iter().enumerate().filter(|(_, known)| !all.contains(*known));
        let free = free.map(|(colour, _)| colour).collect();
        all.retain(|name| !name.is_empty() && !TRANSPORTS.contains(name));
        let mut styles = Self { keys, others: Vec::new(), named: all, free, first };
        // What finds the saturation of an interference study has no foreground, for example.
        let has_all = |cell: &&Cell| keys.iter().all(|key| cell.value(key).is_some());
        for cell in cells.cells.iter().filter(has_all) {
            let values = styles.values(cell);
            if !styles.others.contains(&values) {
                styles.others.push(values);
            }
        }
        styles
    }

    /// How many styles the plots before this one have given to values of other settings.
    pub(super) fn before(plot: &Plot, plots: &[Plot], cells: &Cells) -> usize {
        let mut taken: Vec<&[String]> = Vec::new();
        for other in plots.iter().take_while(|other| other.series != plot.series) {
            let keys = other.series.as_slice();
            if !keys.is_empty() && !has_transport(keys) && !taken.contains(&keys) {
                taken.push(keys);
            }
        }
        taken.into_iter().map(|keys| Styles::new(keys, cells, 0).others.len()).sum()
    }

    fn values<'c>(&self, cell: &'c Cell) -> Vec<Option<&'c Value>> {
        let others = self.keys.iter().filter(|key| *key != key::TRANSPORT);
        others.map(|key| cell.value(key)).collect()
    }

    pub(super) fn of(&self, cell: Option<&Cell>) -> Style {
        let Some(cell) = cell.filter(|_| !self.keys.is_empty()) else { return Style::FIRST };
        let values = self.values(cell);
        let place = self.others.iter().position(|known| *known == values);
        let place = place.unwrap_or(self.others.len());
        if !has_transport(self.keys) {
            let place = self.first + place;
            return Style { colour: place % TRANSPORTS.len(), dash: place / TRANSPORTS.len() };
        }
        let name = cell.text(key::TRANSPORT);
        if let Some(colour) = TRANSPORTS.iter().position(|known| *known == name) {
            return Style { colour, dash: place };
        }
        let link = self.named.iter().position(|known| *known == name).unwrap_or_default();
        let colours = self.free.len().max(1);
        let colour = self.free.get(link % colours).copied().unwrap_or_default();
        // If there are more links than colours, dashes tell them apart.
        Style { colour, dash: place + link / colours * self.others.len().max(1) }
    }
}

fn has_transport(keys: &[String]) -> bool {
    keys.iter().any(|key| key == key::TRANSPORT)
}
