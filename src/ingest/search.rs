//! `search`: the sizes that a question lists, and how many layouts they may make.

use super::fields::Fields;
use super::{FieldError, bounds};
use crate::planner::input::Search;
use crate::planner::layout::enumerate::most_listed;

pub(super) fn read_search(fields: &mut Fields<'_, '_>) -> Search {
    let Some(mut given) = fields.object("search") else {
        return Search { allow_idle_gpus: true, ..Search::default() };
    };
    let mut sizes = |name| given.wholes(name, bounds::PARALLEL, bounds::SEARCH_VALUES);
    let search = Search {
        tp: sizes("tp"),
        pp: sizes("pp"),
        dp: sizes("dp"),
        ep: sizes("ep"),
        attention_dp: sizes("attention_dp"),
        dcp: sizes("dcp"),
        allow_idle_gpus: given.flag("allow_idle_gpus").unwrap_or(true),
    };
    given.finish();
    search
}

/// Refuse a search whose listed sizes make more layouts than [`bounds::SEARCHED`].
pub(super) fn few_searched(fields: &mut Fields<'_, '_>, search: &Search, engines: usize) {
    let searched = most_listed(search).saturating_mul(engines as u64);
    if searched > bounds::SEARCHED {
        let detail = format!(
            "at most {} layouts may be searched (the listed sizes of all axes times the engines), got {searched}",
            bounds::SEARCHED
        );
        fields.push(FieldError::at(&fields.place_of("search"), "out_of_range", detail));
    }
}
