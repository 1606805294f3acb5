//! The grammar of cluster texts: words to groups, a group to what was said of it.
//!
//! ```text
//! text    = group { ("+" | "and" | "," | ";") group }        a new group needs a product of its own
//! group   = { phrase }
//! phrase  = load | count unit | count "a" node | count "of the" count | count | product | size ["of"]
//!         | form | link ["inside" | "between" ...] | domain | scheduler flag | filler
//! ```
//!
//! Phrases come in any order; [`super::meaning`] makes sense of them together.

use winnow::Parser;
use winnow::combinator::{alt, not, opt, peek};
use winnow::error::ModalResult;
use winnow::stream::TokenSlice;
use winnow::token::any;

use super::said::{Named, Phrase, Place, Said, SaidLink, State};
use super::vocabulary::{Fabric, LoadWord, Unit};
use super::words::Word;
use crate::catalogue::hardware::Form;

type Words<'w, 'c> = TokenSlice<'w, Word<'c>>;

/// A word or phrase was there; nothing more is to be known of it.
#[derive(Clone, Copy)]
struct Seen;

/// Split the words into groups.
pub(super) fn groups<'c>(words: &[Word<'c>]) -> Vec<Said<'c>> {
    let mut input = Words::new(words);
    let mut groups: Vec<Said<'c>> = Vec::new();
    let mut state = State::default();
    while let Ok(phrase) = phrase.parse_next(&mut input) {
        if matches!(phrase, Phrase::Separator) {
            state.clause_ends();
            if state.said.has_product() && names_product(input.as_ref()) {
                groups.push(state.said);
                state = State::default();
            }
            continue;
        }
        state.take(phrase);
    }
    groups.push(state.said);
    groups
}

/// True when a product is named before the next "and" or "+".
fn names_product(rest: &[Word<'_>]) -> bool {
    rest.iter()
        .take_while(|w| !matches!(w, Word::Plus | Word::And))
        .any(|w| matches!(w, Word::Name(..) | Word::Dgx | Word::SuperPod))
}

fn phrase<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    alt((
        alt((flagged, load, said_twice, copies, half_a, half_of, part_of, domains)),
        alt((per_node, each_node, ports, host_memory)),
        alt((link, memory_total, units, article_unit, count, named)),
        alt((unit_behind, sized, others)),
    ))
    .parse_next(input)
}

/// A word that `pick` accepts.
fn word<'w, 'c: 'w, T>(
    pick: impl Fn(&Word<'c>) -> Option<T> + 'w,
) -> impl FnMut(&mut Words<'w, 'c>) -> ModalResult<T> {
    move |input: &mut Words<'w, 'c>| any.verify_map(|w: &Word<'c>| pick(w)).parse_next(input)
}

fn number(input: &mut Words<'_, '_>) -> ModalResult<u64> {
    let _ = opt(word(|w| matches!(w, Word::Article).then_some(()))).parse_next(input)?;
    alt((any.verify_map(|w: &Word<'_>| if let Word::Number(n) = w { Some(*n) } else { None }), thousands))
        .parse_next(input)
}

/// "1k H100s", "2k x H100", "4k GPUs": without GPUs behind it such a number is a length in tokens.
fn thousands(input: &mut Words<'_, '_>) -> ModalResult<u64> {
    let n = any
        .verify_map(|w: &Word<'_>| if let Word::Thousands(n, _) = w { Some(*n) } else { None })
        .parse_next(input)?;
    let counted =
        |w: &Word<'_>| matches!(w, Word::Times | Word::Name(..) | Word::Unit(_) | Word::Dgx | Word::SuperPod);
    peek((fillers, any.verify(counted))).parse_next(input)?;
    Ok(n)
}

/// "64 users", "128k context", "4096 tokens", "TP=8", "batch size of 32", "32k": of the load or the layout.
fn load<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    fn figure(input: &mut Words<'_, '_>) -> ModalResult<String> {
        any.verify_map(|w: &Word<'_>| match w {
            Word::Number(n) => Some(n.to_string()),
            Word::Thousands(_, written) => Some(written.clone()),
            _ => None,
        })
        .parse_next(input)
    }
    fn measure(kinds: [LoadWord; 2]) -> impl FnMut(&mut Words<'_, '_>) -> ModalResult<String> {
        move |input| {
            any.verify_map(|w: &Word<'_>| match w {
                Word::Load(kind, word) if kinds.contains(kind) => Some(word.clone()),
                _ => None,
            })
            .parse_next(input)
        }
    }
    let knob = || measure([LoadWord::Before, LoadWord::Either]);
    let either = || measure([LoadWord::Either, LoadWord::Either]);
    let unit = || measure([LoadWord::Behind, LoadWord::Behind]);
    // "batch size of 32", "context length = 32k"
    let set =
        (knob(), opt(knob()), fillers, opt(is(Word::Of)), fillers, figure).map(|(word, more, .., n)| {
            [Some(word), more, Some(n)].into_iter().flatten().collect::<Vec<_>>().join(" ")
        });
    // "10 requests per second", "100 tok/s"
    let rate = (alt((is(Word::Each), is(Word::Slash))), unit()).map(|(_, unit)| format!("/{unit}"));
    // "64 concurrent users", but not the "8" of "8 context 32k"
    let next_figure = || peek(not((fillers, figure)));
    let counted = alt((unit(), (either(), next_figure()).map(|(word, ())| word)));
    let measured = (figure, fillers, counted, opt(rate))
        .map(|(n, _, word, rate)| format!("{n} {word}{}", rate.unwrap_or_default()));
    let alone = alt((
        any.verify_map(|w: &Word<'_>| if let Word::Load(_, word) = w { Some(word.clone()) } else { None }),
        // "at 32k"
        any.verify_map(|w: &Word<'_>| if let Word::Thousands(_, w) = w { Some(w.clone()) } else { None }),
    ));
    if peek(opt(thousands)).parse_next(input)?.is_some() {
        return Err(winnow::error::ErrMode::Backtrack(winnow::error::ContextError::new()));
    }
    alt((set, measured, alone)).map(Phrase::Load).parse_next(input)
}

fn unit(input: &mut Words<'_, '_>) -> ModalResult<Unit> {
    any.verify_map(|w: &Word<'_>| match w {
        Word::Unit(Unit::Nodes) => Some(Unit::Node),
        Word::Unit(u) => Some(*u),
        _ => None,
    })
    .parse_next(input)
}

fn is<'w, 'c: 'w>(wanted: Word<'c>) -> impl FnMut(&mut Words<'w, 'c>) -> ModalResult<Seen> {
    move |input: &mut Words<'w, 'c>| any.verify(|w: &Word<'c>| *w == wanted).value(Seen).parse_next(input)
}

fn fillers(input: &mut Words<'_, '_>) -> ModalResult<Seen> {
    while opt(any.verify(|w: &Word<'_>| matches!(w, Word::Filler | Word::Join))).parse_next(input)?.is_some()
    {
    }
    Ok(Seen)
}

/// `-N 2`, `--gpus-per-node=8`, `gpu:h100:8`, `--gpus=16`
fn flagged<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let flag = any
        .verify_map(|w: &Word<'c>| {
            matches!(w, Word::NodesFlag | Word::PerNodeFlag | Word::TotalFlag).then(|| w.clone())
        })
        .parse_next(input)?;
    // "gpu:h100:8": the name stands between the flag and its number and is read on its own.
    let named = peek(opt((named, fillers))).parse_next(input)?.is_some();
    if named {
        return Ok(if flag == Word::PerNodeFlag { Phrase::NextPerNode } else { Phrase::Nothing });
    }
    let n = (fillers, number).map(|(_, n)| n).parse_next(input)?;
    Ok(match flag {
        Word::NodesFlag => Phrase::NodesFlag(n),
        Word::PerNodeFlag => Phrase::PerNode(n),
        _ => Phrase::Count(n),
    })
}

/// "sixteen (16)"
fn said_twice<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    (number, is(Word::Join), number, is(Word::Join))
        .verify_map(|(n, _, again, _)| (n == again).then_some(Phrase::Count(n)))
        .parse_next(input)
}

/// "(8xH100) * 2", "[4 A100] x2"
fn copies<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    (is(Word::Join), is(Word::Times), number).map(|(.., n)| Phrase::Copies(n)).parse_next(input)
}

/// "half a dozen"
fn half_a<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let count = any.verify_map(|w: &Word<'_>| if let Word::Number(n) = w { Some(*n) } else { None });
    (is(Word::Half), is(Word::Article), count.verify(|n| n.is_multiple_of(2)))
        .map(|(.., n)| Phrase::Count(n / 2))
        .parse_next(input)
}

/// "half of the 8"
fn half_of<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let (.., whole, _) = (
        is(Word::Half),
        opt(is(Word::Of)),
        is(Word::The),
        number,
        peek(opt(is(Word::Times)).verify(Option::is_none)),
    )
        .parse_next(input)?;
    Ok(Phrase::PartOf(whole / 2, whole))
}

/// "4 of the 8"
fn part_of<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let (part, _, _, _, whole, _) = (
        number,
        fillers,
        is(Word::Of),
        opt(is(Word::The)),
        number,
        peek(opt(is(Word::Times)).verify(Option::is_none)),
    )
        .parse_next(input)?;
    Ok(Phrase::PartOf(part, whole))
}

/// "one NVLink domain of 72", "islands of 2"
fn domains<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let count = opt(number).parse_next(input)?;
    let _ = opt(is(Word::Article)).parse_next(input)?;
    let _ = opt(is(Word::Fabric(Fabric::NvLink))).parse_next(input)?;
    let _ = unit.verify(|u| *u == Unit::Domain).parse_next(input)?;
    let gpus = opt((is(Word::Of), number).map(|(_, n)| n)).parse_next(input)?;
    Ok(Phrase::Domains(count, gpus))
}

/// "8 a node", "8 GPUs per node", "8/node", "8 each", "per node 8"
fn per_node<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let node = || unit.verify(|u| matches!(u, Unit::Node | Unit::Tray));
    let before =
        (number, opt(is(Word::Unit(Unit::Gpu))), fillers, alt((each_of_node, each_alone))).map(|(n, ..)| n);
    let behind =
        (is(Word::Each), node(), fillers, number, opt(is(Word::Unit(Unit::Gpu)))).map(|(_, _, _, n, _)| n);
    let joined = (
        is(Word::Each),
        fillers,
        number,
        opt(is(Word::Unit(Unit::Gpu))),
        peek(opt(is(Word::Times)).verify(Option::is_none)),
    )
        .map(|(_, _, n, ..)| n);
    alt((before, behind, joined)).map(Phrase::PerNode).parse_next(input)
}

/// "a node", "per node", "/node", "each node", "in each node"
fn each_of_node(input: &mut Words<'_, '_>) -> ModalResult<Seen> {
    let each = any.verify(|w: &Word<'_>| matches!(w, Word::Each | Word::Article | Word::Slash)).value(Seen);
    let node = unit.verify(|u| matches!(u, Unit::Node | Unit::Tray)).value(Seen);
    (opt(is(Word::Over)), each, node).value(Seen).parse_next(input)
}

/// "each" at the end of a clause.
fn each_alone(input: &mut Words<'_, '_>) -> ModalResult<Seen> {
    let _ = is(Word::Each).parse_next(input)?;
    peek(opt(alt((number.value(Seen), unit.value(Seen)))))
        .verify(Option::is_none)
        .value(Seen)
        .parse_next(input)
}

/// The same behind a product: "8 H100 per node", "2 nodes with 8 H100 each".
fn each_node<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    alt((each_of_node, each_alone)).map(|_| Phrase::EachNode).parse_next(input)
}

/// "8 ports a node", "8x 400G NICs"
fn ports<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let rate = any
        .verify(|w: &Word<'c>| matches!(w, Word::Rate(_) | Word::Gigas(_) | Word::Link(_) | Word::Fabric(_)));
    let with_unit = (number, opt(is(Word::Times)), opt(rate), unit.verify(|u| *u == Unit::Port))
        .map(|(n, _, rate, _)| (n, rate.cloned()));
    // "8x400Gb/s NDR": what has a rate in bits is a port
    let gbit = any.verify_map(|w: &Word<'c>| if let Word::Rate(gbit) = w { Some(*gbit) } else { None });
    let fabric = any.verify(|w: &Word<'c>| matches!(w, Word::Link(_) | Word::Fabric(_)));
    let by_rate = (number, is(Word::Times), gbit, opt(fabric))
        .map(|(n, _, gbit, fabric)| (n, Some(fabric.cloned().unwrap_or(Word::Rate(gbit)))));
    let (n, rate) = alt((with_unit, by_rate)).parse_next(input)?;
    let _ = opt(each_of_node).parse_next(input)?;
    Ok(Phrase::Ports(n, rate))
}

/// "2048 GB RAM", "2 TB host memory"
fn host_memory<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let size = any.verify_map(|w: &Word<'c>| match w {
        Word::Memory { low_gb, .. } => Some(*low_gb),
        Word::Gigas(gb) => Some(*gb),
        _ => None,
    });
    let (gb, _, _, _) =
        (size, opt(is(Word::Of)), is(Word::HostMemory), opt(each_of_node)).parse_next(input)?;
    Ok(Phrase::HostMemory(gb))
}

/// A link, its rate, and where it is.
fn link<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let denied = opt(is(Word::No)).parse_next(input)?.is_some();
    let mut said =
        SaidLink { link: None, fabric: None, gbit: None, bridge: false, denied, place: Place::Unsaid };
    let mut parts = 0;
    loop {
        let part = opt(any.verify_map(|w: &Word<'c>| match w {
            Word::Link(_) | Word::Fabric(_) | Word::Rate(_) | Word::Gigas(_) | Word::Bridge => {
                Some(w.clone())
            }
            // "PCIe inside" and "no PCIe" are links; elsewhere PCIe is a form factor.
            Word::Form(Form::Pcie) if denied => Some(w.clone()),
            _ => None,
        }))
        .parse_next(input)?;
        match part {
            Some(Word::Link(link)) if said.link.is_none() => said.link = Some(link),
            Some(Word::Fabric(fabric)) => said.fabric = said.fabric.or(Some(fabric)),
            Some(Word::Rate(gbit) | Word::Gigas(gbit)) => said.gbit = Some(gbit),
            Some(Word::Bridge) => said.bridge = true,
            _ => break,
        }
        parts += 1;
        // A second full link is a phrase of its own.
        if peek(opt(word(|w| matches!(w, Word::Link(_)).then_some(())))).parse_next(input)?.is_some()
            && (said.link.is_some() || said.place != Place::Unsaid)
        {
            break;
        }
    }
    let only_size = parts == 1 && said.gbit.is_some();
    // "A100 80G NVLink": the size is the GPU's.
    let not_a_rate = said.gbit.is_some() && said.fabric == Some(Fabric::NvLink);
    if parts == 0 || not_a_rate || only_size && !denied {
        return Err(winnow::error::ErrMode::Backtrack(winnow::error::ContextError::new()));
    }
    let _ = fillers(input);
    said.place = opt(place).parse_next(input)?.unwrap_or(Place::Unsaid);
    Ok(Phrase::Link(said))
}

fn place(input: &mut Words<'_, '_>) -> ModalResult<Place> {
    let inside = (opt(is(Word::Over)), is(Word::Inside), opt(each_of_node)).value(Place::Inside);
    let islands = (is(Word::Between), opt(is(Word::The)), unit.verify(|u| *u == Unit::Domain))
        .value(Place::BetweenIslands);
    let between = (
        is(Word::Between),
        opt(is(Word::The)),
        opt(unit.verify(|u| matches!(u, Unit::Node | Unit::Tray | Unit::Rack))),
    )
        .value(Place::Between);
    let over = (is(Word::Over), unit.verify(|u| *u == Unit::Node)).value(Place::Between);
    alt((inside, islands, between, over)).parse_next(input)
}

/// "640GB of"
fn memory_total<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let size = any.verify_map(|w: &Word<'c>| match w {
        Word::Memory { low_gb, high_gb } if low_gb == high_gb => Some(*low_gb),
        _ => None,
    });
    (size, fillers, is(Word::Of)).map(|(gb, ..)| Phrase::TotalMemory(gb)).parse_next(input)
}

/// "2 nodes", "18 trays", "8-GPU", "2x racks"
fn units<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let (n, _, _, unit) = (number, opt(is(Word::Times)), opt(is(Word::Join)), unit).parse_next(input)?;
    Ok(Phrase::Units(n, unit))
}

/// "a rack", "a superchip"
fn article_unit<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    let (_, unit) = (is(Word::Article), unit.verify(|u| *u != Unit::Gpu)).parse_next(input)?;
    Ok(Phrase::Units(1, unit))
}

fn count<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    number.map(Phrase::Count).parse_next(input)
}

fn named<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    any.verify_map(|w: &Word<'c>| match w {
        Word::Name(described, spelling) => {
            Some(Phrase::Named(Named { described, spelling: spelling.clone() }))
        }
        _ => None,
    })
    .parse_next(input)
}

fn unit_behind<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    any.verify_map(|w: &Word<'c>| if let Word::Unit(u) = w { Some(Phrase::UnitBehind(*u)) } else { None })
        .parse_next(input)
}

fn sized<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    any.verify_map(|w: &Word<'c>| match w {
        Word::Memory { low_gb, high_gb } => Some(Phrase::Memory(*low_gb, *high_gb)),
        Word::Gigas(gb) => Some(Phrase::Memory(*gb, *gb)),
        Word::Mig { slices, gb } => Some(Phrase::Mig(*slices, *gb)),
        Word::Form(form) => Some(Phrase::Form(*form)),
        _ => None,
    })
    .parse_next(input)
}

/// Single words. Never fails but at the end.
fn others<'c>(input: &mut Words<'_, 'c>) -> ModalResult<Phrase<'c>> {
    any.map(|w: &Word<'c>| match w {
        Word::Plus | Word::And | Word::Comma => Phrase::Separator,
        Word::Suffix(n) => Phrase::Suffix(*n),
        Word::NodesAndGpus(nodes, gpus) => Phrase::NodesAndGpus(*nodes, *gpus),
        Word::No => Phrase::No,
        Word::Over => Phrase::Over,
        Word::Times => Phrase::Times,
        Word::Half => Phrase::Half,
        Word::Share(parts) => Phrase::Share(*parts),
        Word::Vague => Phrase::Vague,
        Word::Negative => Phrase::Negative,
        Word::Huge(n) => Phrase::Huge(n.clone()),
        Word::Dgx => Phrase::Dgx,
        Word::SuperPod | Word::ScalableUnit => Phrase::SuperPod,
        Word::Unknown(word) => Phrase::Unknown(word.clone()),
        _ => Phrase::Nothing,
    })
    .parse_next(input)
}
