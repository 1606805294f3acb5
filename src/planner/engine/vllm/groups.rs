//! Layers into groups that share block tables (`v1/core/kv_cache_planning.py`).
//!
//! The order of attempts: one group of equal pages; one group of one type with pages of its own for each layer; packed
//! groups where blocks are outermost (DeepSeek-V4); else one page size for all, and each kind cut into groups of equal size.

use smallvec::SmallVec;

use super::pages::{Class, Page};

/// Equal pages, with the layers that have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    pub page: Page,
    /// Layers on each stage.
    pub by_stage: SmallVec<[u64; 4]>,
}

impl Counted {
    /// Layers over all stages.
    pub fn total(&self) -> u64 {
        self.by_stage.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

/// Pages that share block tables, cut into `groups` groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    pub pages: SmallVec<[Counted; 3]>,
    pub groups: u64,
}

impl Bucket {
    fn whole(pages: impl IntoIterator<Item = Counted>) -> Self {
        Self { pages: pages.into_iter().collect(), groups: 1 }
    }

    /// The class, which all pages of a bucket share.
    pub fn class(&self) -> Class {
        self.pages.first().map_or(Class::Full, |c| c.page.class)
    }

    /// Bytes of one block of the fullest group on a stage: layers are dealt out round robin.
    pub fn block_bytes(&self, stage: usize) -> u64 {
        let groups = self.groups.max(1);
        self.pages.iter().fold(0, |sum, c| {
            let layers = c.by_stage.get(stage).copied().unwrap_or(0).div_ceil(groups);
            layers.saturating_mul(c.page.bytes).saturating_add(sum)
        })
    }
}

/// Page sizes that no rule brings together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CannotUnify {
    pub page: u64,
    pub largest: u64,
}

/// Count the equal pages of layers; `layers` yields the pages of one layer with the stage it is on.
pub fn count<'a>(layers: impl Iterator<Item = (usize, u64, &'a [Page])>, stages: usize) -> Vec<Counted> {
    let mut counted: Vec<Counted> = Vec::new();
    for (stage, times, pages) in layers {
        for page in pages {
            let index = counted.iter().position(|c| c.page == *page).unwrap_or_else(|| {
                counted.push(Counted { page: *page, by_stage: SmallVec::from_elem(0, stages) });
                counted.len().saturating_sub(1)
            });
            if let Some(n) = counted.get_mut(index).and_then(|c| c.by_stage.get_mut(stage)) {
                *n = n.saturating_add(times);
            }
        }
    }
    counted
}

/// Groups of the layers. `packed`: blocks are outermost in memory, so pages of several sizes lie side by side.
pub fn group(pages: Vec<Counted>, packed: bool, disable_hybrid: bool) -> Result<Vec<Bucket>, CannotUnify> {
    let pages = if disable_hybrid && !one_type(&pages) { promote(pages) } else { pages };
    if pages.is_empty() {
        return Ok(Vec::new());
    }
    if one_type(&pages) {
        return Ok(vec![Bucket::whole(pages)]);
    }
    if packed {
        return Ok(pack(pages));
    }
    match unify(&pages) {
        Ok(unified) => Ok(cut(unified)),
        Err(cannot) => {
            let promoted = promote(pages);
            if one_type(&promoted) { Ok(vec![Bucket::whole(promoted)]) } else { Err(cannot) }
        }
    }
}

/// All layers need the same number of blocks: one block size and one way of keeping tokens.
fn one_type(pages: &[Counted]) -> bool {
    let Some(first) = pages.first().map(|c| c.page) else { return true };
    pages.iter().all(|c| same_type(c.page, first))
}

fn same_type(a: Page, b: Page) -> bool {
    a.block == b.block
        && match (a.class, b.class) {
            (Class::State { .. }, Class::State { .. }) => a.class == b.class && a.bytes == b.bytes,
            (x, y) => x == y || x.keeps_every_token() && y.keeps_every_token(),
        }
}

/// Windows and chunks allocated as if they kept every token.
fn promote(pages: Vec<Counted>) -> Vec<Counted> {
    let full_block = pages.iter().find(|c| c.page.class.keeps_every_token()).map(|c| c.page.block);
    let Some(full_block) = full_block else { return pages };
    let mut out: Vec<Counted> = Vec::with_capacity(pages.len());
    for mut counted in pages {
        let class = match counted.page.class {
            Class::Sliding { .. } | Class::Chunked { .. } => Class::Full,
            Class::LatentWindow { .. } => Class::Latent,
            other => other,
        };
        if class != counted.page.class {
            let per_token = counted.page.bytes.checked_div(counted.page.block).unwrap_or(0);
            counted.page.class = class;
            counted.page.block = full_block;
            counted.page.bytes = per_token.saturating_mul(full_block);
        }
        merge_into(&mut out, counted);
    }
    out
}

fn merge_into(out: &mut Vec<Counted>, counted: Counted) {
    match out.iter_mut().find(|c| c.page == counted.page) {
        Some(same) => {
            for (n, more) in same.by_stage.iter_mut().zip(&counted.by_stage) {
                *n = n.saturating_add(*more);
            }
        }
        None => out.push(counted),
    }
}

/// One page size for all: smaller pages take more tokens where they divide the largest, else they are padded; states are
/// always padded, latents never.
fn unify(pages: &[Counted]) -> Result<Vec<Counted>, CannotUnify> {
    let largest = pages.iter().map(|c| c.page.bytes).max().unwrap_or(0);
    let mut out = Vec::with_capacity(pages.len());
    for counted in pages {
        let mut counted = counted.clone();
        let page = &mut counted.page;
        if page.bytes != largest {
            let ratio = largest.checked_div(page.bytes).unwrap_or(1);
            let divides = page.bytes.checked_mul(ratio) == Some(largest);
            match page.class {
                Class::State { .. } => {}
                _ if divides => page.block = page.block.saturating_mul(ratio),
                Class::Latent | Class::LatentWindow { .. } => {
                    return Err(CannotUnify { page: page.bytes, largest });
                }
                _ => {}
            }
            page.bytes = largest;
        }
        merge_into(&mut out, counted);
    }
    Ok(out)
}

/// Each kind into groups of as many layers as the smallest kind has, or as the largest has where that is less than half more.
fn cut(pages: Vec<Counted>) -> Vec<Bucket> {
    let smallest = pages.iter().map(Counted::total).min().unwrap_or(1).max(1);
    let largest = pages.iter().map(Counted::total).max().unwrap_or(1).max(1);
    let close = largest.saturating_mul(2) < smallest.saturating_mul(3);
    let size = if close { largest } else { smallest };
    pages
        .into_iter()
        .map(|counted| Bucket {
            groups: counted.total().div_ceil(size),
            pages: SmallVec::from_iter([counted]),
        })
        .collect()
}

/// Packed groups: pages of one type form a bucket; buckets with equally many layers of each page size are cut into groups of
/// about the size of the largest that mixes sizes, the others stay whole.
fn pack(pages: Vec<Counted>) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    for counted in pages {
        match buckets.iter_mut().find(|b| b.pages.iter().all(|c| same_type(c.page, counted.page))) {
            Some(bucket) => bucket.pages.push(counted),
            None => buckets.push(Bucket::whole([counted])),
        }
    }
    let repeats = |b: &Bucket| b.pages.iter().map(Counted::total).max().unwrap_or(0);
    let balanced = |b: &Bucket| b.pages.iter().map(Counted::total).min() == Some(repeats(b));
    let floor = buckets.iter().filter(|b| balanced(b) && b.pages.len() > 1).map(repeats).max().unwrap_or(0);
    if floor > 0 {
        let sizes: SmallVec<[u64; 8]> = buckets.iter().filter(|b| balanced(b)).map(repeats).collect();
        let size = least_padding(&sizes, floor).max(1);
        for bucket in &mut buckets {
            if balanced(bucket) {
                bucket.groups = repeats(bucket).div_ceil(size).max(1);
            }
        }
    }
    buckets
}

/// The group size of at least `floor` that wastes the fewest layers over `counts`; of equals the larger.
fn least_padding(counts: &[u64], floor: u64) -> u64 {
    let most = counts.iter().copied().max().unwrap_or(floor).min(floor.saturating_add(4096));
    let waste = |size: u64| {
        counts.iter().fold(0_u64, |sum, n| {
            sum.saturating_add(n.div_ceil(size.max(1)).saturating_mul(size).saturating_sub(*n))
        })
    };
    (floor.max(1)..=most).rev().min_by_key(|size| waste(*size)).unwrap_or(floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(class: Class, block: u64, bytes: u64, layers: u64) -> Counted {
        Counted {
            page: Page { class, heads: 1, key_size: 128, block, bytes },
            by_stage: SmallVec::from_slice(&[layers]),
        }
    }

    #[test]
    fn each_kind_is_cut_to_the_smallest() {
        let pages = vec![
            counted(Class::Sliding { window: 1024 }, 16, 131_072, 52),
            counted(Class::Full, 16, 131_072, 10),
        ];
        let buckets = group(pages, false, false).expect("groups");
        assert_eq!(buckets.iter().map(|b| b.groups).collect::<Vec<_>>(), [6, 1]);
        assert_eq!(buckets.iter().map(|b| b.block_bytes(0)).max(), Some(10 * 131_072));
    }

    #[test]
    fn close_kinds_are_padded_to_the_larger() {
        let pages =
            vec![counted(Class::Sliding { window: 128 }, 16, 64, 12), counted(Class::Full, 16, 64, 13)];
        let buckets = group(pages, false, false).expect("groups");
        assert_eq!(buckets.iter().map(|b| b.groups).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn smaller_pages_take_more_tokens() {
        let pages = vec![
            counted(Class::Sliding { window: 1024 }, 16, 131_072, 25),
            counted(Class::Full, 16, 65_536, 5),
        ];
        let buckets = group(pages, false, false).expect("groups");
        assert_eq!(
            buckets.last().map(|b| b.pages.first().map(|c| (c.page.block, c.page.bytes))),
            Some(Some((32, 131_072)))
        );
    }

    #[test]
    fn without_the_hybrid_manager_everything_is_full() {
        let pages =
            vec![counted(Class::Sliding { window: 1024 }, 16, 64, 5), counted(Class::Full, 16, 64, 1)];
        let buckets = group(pages, false, true).expect("groups");
        assert_eq!(buckets.len(), 1);
        assert_eq!(buckets.first().map(|b| b.block_bytes(0)), Some(6 * 64));
    }

    #[test]
    fn deepseek_v4_pro_packs_into_five_groups() {
        let pages = vec![
            counted(Class::LatentWindow { window: 128 }, 64, 37_440, 61),
            counted(Class::Latent, 256, 1728, 31),
            counted(Class::LatentWindow { window: 128 }, 8, 32_832, 31),
            counted(Class::Latent, 256, 8640, 30),
            counted(Class::Latent, 256, 37_441, 30),
            counted(Class::LatentWindow { window: 8 }, 4, 8640, 30),
            counted(Class::LatentWindow { window: 8 }, 4, 32_832, 30),
        ];
        let buckets = group(pages, true, false).expect("groups");
        assert_eq!(buckets.iter().map(|b| b.groups).collect::<Vec<_>>(), [2, 1, 1, 1]);
        assert_eq!(buckets.iter().map(|b| b.block_bytes(0)).max(), Some(31 * 1728 + 30 * 8640 + 30 * 37_441));
    }
}
