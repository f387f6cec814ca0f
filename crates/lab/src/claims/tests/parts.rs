//! Claims about a part of what was planned.

use super::*;
use crate::cells::Metric;

#[test]
fn a_tenant_alone_has_no_background() {
    let reached = Metric::named("background-reached").expect("a metric");
    let mut told = 0;
    all(|_, records| {
        let cells = Cells::of(&repeated(records), &Environment::default());
        for cell in &cells.cells {
            let is_known = reached.read(&cells, cell).estimate().is_some();
            assert!(!is_known || cell.role != Role::Alone, "{}", cell.label);
            told += usize::from(is_known);
        }
    });
    assert!(told > 0, "a background was reached");
}
