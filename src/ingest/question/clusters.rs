//! The GPUs of a question: clusters as the reader of clusters takes them, and products without a count.

use std::ops::Range;

use super::words::Words;
use crate::catalogue::hardware::HardwareCatalogue;
use crate::ingest::cluster::{ClusterError, Part, Piece, parse_text, pieces};

/// Groups of GPUs that are read in one question; people compare a handful.
const MOST_GROUPS: usize = 16;

/// GPUs that a question names.
#[derive(Debug, Default)]
pub(super) struct Gpus {
    /// With a count or a machine, as written; in order.
    pub(super) clusters: Vec<Group>,
    /// Without.
    pub(super) products: Vec<Group>,
    /// What the reader of clusters asks back, and of which text.
    pub(super) asked: Option<(String, ClusterError)>,
}

/// A text of one or more GPUs, with its words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) text: String,
    pub(super) run: Range<usize>,
}

impl Gpus {
    /// Find the GPUs among the free words. `apart`: "and" puts one group against the other.
    pub(super) fn of(words: &mut Words, saved: &[String], apart: bool, hardware: &HardwareCatalogue) -> Self {
        let mut gpus = Self::default();
        gpus.take_saved(words, saved);
        let mut countless = None;
        for stretch in words.free_runs() {
            let text = words.written(&stretch).to_owned();
            for group in groups(&text, apart, hardware) {
                if gpus.clusters.len() + gpus.products.len() >= MOST_GROUPS {
                    return gpus;
                }
                let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
                let run = words.under(stretch.start, &(first.at.start..last.at.end));
                let has = |parts: &[Part]| group.iter().any(|piece| parts.contains(&piece.part));
                if !has(&[Part::Product, Part::System]) {
                    // "8 GPUs": which?
                    if has(&[Part::Count]) && has(&[Part::Unit]) {
                        countless = countless.or(Some(run));
                    }
                } else if has(&[Part::Count, Part::System, Part::Article]) {
                    gpus.read(words, run, hardware);
                } else {
                    gpus.take_products(words, stretch.start, &group, run, &text, hardware);
                }
            }
        }
        if gpus.clusters.is_empty() && gpus.products.is_empty() && gpus.asked.is_none() {
            let named = countless.or_else(|| unknown_product(words, hardware));
            if let Some(run) = named {
                gpus.read(words, run, hardware);
            }
        }
        gpus.clusters.sort_by_key(|group| group.run.start);
        gpus
    }

    /// "saved:prod-east", or a name under which something is saved.
    fn take_saved(&mut self, words: &mut Words, saved: &[String]) {
        for i in 0..words.len() {
            let Some(word) = words.at(i) else { continue };
            let by_name = saved.iter().find(|name| name.eq_ignore_ascii_case(word));
            let text = match by_name {
                Some(name) => format!("saved:{name}"),
                None if word.starts_with("saved:") => words.written(&(i..i + 1)).to_owned(),
                None => continue,
            };
            words.take(i);
            self.clusters.push(Group { text, run: i..i + 1 });
        }
    }

    fn read(&mut self, words: &mut Words, run: Range<usize>, hardware: &HardwareCatalogue) {
        let text = words.written(&run).to_owned();
        match parse_text(&text, hardware) {
            Ok(_) => self.clusters.push(Group { text, run: run.clone() }),
            Err(error) if self.asked.is_none() => self.asked = Some((text, error)),
            Err(_) => return,
        }
        words.take_all(run);
    }

    /// The products of a group without a count: each with its memory, where that is said and makes it another.
    fn take_products(
        &mut self,
        words: &mut Words,
        start: usize,
        group: &[Piece],
        run: Range<usize>,
        text: &str,
        hardware: &HardwareCatalogue,
    ) {
        let named = |text: &str| {
            let entry =
                hardware.gpu_entry(text).or_else(|| hardware.gpu_entry(text.trim_end_matches(['s', 'S'])))?;
            let short = &entry.gpu.short_name;
            let means_it = hardware.gpu_entry(short).is_some_and(|other| other.gpu.key == entry.gpu.key);
            Some(if means_it { short.clone() } else { entry.gpu.key.clone() })
        };
        let whole = named(words.written(&run)).map(|name| (name, run));
        let each = || {
            group.iter().filter(|piece| piece.part == Part::Product).filter_map(|piece| {
                let name = named(text.get(piece.at.clone())?)?;
                Some((name, words.under(start, &piece.at)))
            })
        };
        let found: Vec<(String, Range<usize>)> = match whole {
            Some(whole) => vec![whole],
            None => each().collect(),
        };
        for (text, run) in found {
            words.take_all(run.clone());
            if !self.products.iter().any(|known| known.text == text) {
                self.products.push(Group { text, run });
            }
        }
    }
}

/// Runs of pieces that speak of GPUs, without what joins them to the rest.
fn groups(text: &str, apart: bool, hardware: &HardwareCatalogue) -> Vec<Vec<Piece>> {
    let pieces = pieces(text, hardware);
    let mut groups: Vec<Vec<Piece>> = vec![Vec::new()];
    for (i, piece) in pieces.iter().enumerate() {
        let next = pieces.get(i + 1).map(|next| next.part);
        // "two copies": the number is of what follows
        let counts_other = piece.part == Part::Count && next == Some(Part::Other);
        let names = |pieces: &[Piece]| pieces.iter().any(|p| matches!(p.part, Part::Product | Part::System));
        let against = apart
            && piece.part == Part::Separator
            && groups.last().is_some_and(|group| names(group))
            && names(pieces.get(i..).unwrap_or_default());
        if piece.part == Part::Other || counts_other || against {
            groups.push(Vec::new());
        } else if let Some(group) = groups.last_mut() {
            group.push(piece.clone());
        }
    }
    groups.into_iter().map(|group| trimmed(&group)).filter(|group| !group.is_empty()).collect()
}

/// Without words at the ends that only join.
fn trimmed(group: &[Piece]) -> Vec<Piece> {
    let idle = |piece: &Piece| matches!(piece.part, Part::Join | Part::Separator);
    let mut rest = group;
    while let Some((last, before)) = rest.split_last()
        && (idle(last) || last.part == Part::Article)
    {
        rest = before;
    }
    while let Some((first, behind)) = rest.split_first() {
        let counts = behind.first().is_some_and(|next| {
            matches!(next.part, Part::Count | Part::Product | Part::System | Part::Unit | Part::Detail)
        });
        let article = first.part == Part::Article && !counts;
        if !(idle(first) || article) {
            break;
        }
        rest = behind;
    }
    rest.to_vec()
}

/// "8 R100", "16 H10Os": a count and a name with digits in it that nobody knows.
fn unknown_product(words: &Words, hardware: &HardwareCatalogue) -> Option<Range<usize>> {
    (0..words.len()).find_map(|i| {
        let run = i..i + 2;
        let is_number = words.at(i)?.trim_end_matches(['x', '×']).parse::<u64>().is_ok();
        let name = words.at(i + 1)?;
        let like_a_product = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.contains(|c: char| c.is_ascii_digit())
            && name.len() <= 12;
        (is_number && like_a_product && parse_text(words.written(&run), hardware).is_err()).then_some(run)
    })
}
