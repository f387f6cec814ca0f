//! `weft target --check`: a start that ends before anybody is served, and leaves nothing.

use weft_backend::files;
use weft_target::config::Config;

use super::control::Control;
use super::operate::operator::Operator;
use super::pair::Pair;
use super::{Options, announce, metrics};
use crate::failure::Failure;

impl Options {
    /// Says what would be served, or else what the start would say. It goes in the order of the
    /// start, so that both say the same of several faults.
    pub(super) fn check_start(&self, config: Config) -> Result<(), Failure> {
        self.lock_state(files::can_lock_beside)?;
        self.control_token()?;
        let config = self.saved(&config)?.map_or(config, |saved| saved.config);
        self.metrics.config(self.is_watched())?;
        let config = Config { events_file: self.events_file(), ..config };
        config.pair.iter().for_each(Pair::prepare);
        let checked = weft_target::check(&config).map_err(Failure::because)?;
        self.state.as_deref().map_or(Ok(()), Operator::can_keep_in).map_err(Failure::because)?;
        config.pair.iter().try_for_each(Pair::check)?;
        self.control.as_ref().map_or(Ok(()), Control::can_listen)?;
        self.metrics.metrics.map_or(Ok(()), |address| metrics::listen(address).map(drop))?;
        let has_file = self.config.is_some();
        announce::check(&config, &checked.namespaces, has_file, self.output_format)
    }
}
