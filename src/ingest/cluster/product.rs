//! From a name and what was said with it (memory, form, slice) to one product, with what had to be assumed.

use super::error::ClusterError;
use super::said::Named;
use crate::catalogue::hardware::{Form, GpuEntry, HardwareCatalogue, Name};
use crate::planner::hardware::{ClusterAssumption, ClusterWarning, Gpu, PeakFlops};
use crate::planner::units::Bytes;

/// Sizes in tables differ by this share for one and the same part (GB against GiB, total against usable).
const MEMORY_TOLERANCE: f64 = 0.07;

/// Compute slices of a MIG-capable GPU, and its memory slices
/// (https://docs.nvidia.com/datacenter/tesla/mig-user-guide/).
const MIG_COMPUTE_SLICES: f64 = 7.0;
const MIG_MEMORY_SLICES: f64 = 8.0;

/// The product that was meant.
#[derive(Debug, Clone)]
pub(super) struct Product<'c> {
    pub entry: &'c GpuEntry,
    pub gpu: Gpu,
    pub assumed: Vec<ClusterAssumption>,
    pub warnings: Vec<ClusterWarning>,
}

/// What was said of the product beside its name.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traits {
    pub memory_gb: Option<(f64, f64)>,
    pub form: Option<Form>,
    pub mig: Option<(u64, u64)>,
    /// Whether the text fixed the nodes: then a silent memory size is the only open point.
    pub nodes_stated: bool,
}

/// Resolve a name.
pub(super) fn product<'c>(
    named: &Named<'c>,
    traits: Traits,
    catalogue: &'c HardwareCatalogue,
) -> Result<Product<'c>, ClusterError> {
    let candidates: Vec<&GpuEntry> =
        named.described.gpus().iter().filter_map(|&i| catalogue.gpu_at(i)).collect();
    let Some(usual) = usual_of(&candidates) else {
        return Err(without_figures(named, catalogue));
    };
    if candidates.iter().any(|e| e.family != usual.family) && traits.memory_gb.is_none() {
        let names: Vec<String> = candidates.iter().map(|e| e.gpu.short_name.clone()).collect();
        let message =
            format!("\"{}\" is the name of several products: is it {}?", named.spelling, names.join(", or "));
        return Err(ClusterError::ambiguous(message, names));
    }
    let usual = match traits.memory_gb {
        Some(range) => {
            usual_of(&candidates.iter().copied().filter(|e| memory_fits(range, e)).collect::<Vec<_>>())
                .unwrap_or(usual)
        }
        None => usual,
    };
    let family: Vec<&GpuEntry> = catalogue.gpus().filter(|e| e.family == usual.family).collect();
    let form = traits.form.or(named.described.has_form.then_some(usual.form));
    let exact = if named.described.has_memory && traits.memory_gb.is_none() {
        Some(usual.marketing_gb)
    } else {
        None
    };
    let said: Vec<&GpuEntry> = family
        .iter()
        .copied()
        .filter(|e| form.is_none_or(|f| form_fits(f, e)))
        .filter(|e| traits.memory_gb.is_none_or(|range| memory_fits(range, e)))
        .filter(|e| exact.is_none_or(|gb| e.marketing_gb == gb))
        .collect();
    if said.is_empty() {
        return Err(no_such_variant(named, traits, &family));
    }
    if usual.family == "h20"
        && traits.memory_gb.is_none()
        && exact.is_none()
        && !traits.nodes_stated
        && said.len() > 1
    {
        let message =
            "H20 comes with 96 GB or with 141 GB (H20-3e), and the nodes are not stated either: which is it?";
        return Err(ClusterError::ambiguous(message, ["8x H20 96GB", "8x H20-3e 141GB"].map(str::to_owned)));
    }
    let chosen = said
        .iter()
        .copied()
        .max_by_key(|e| (e.marketing_gb == usual.marketing_gb, e.gpu.key == usual.gpu.key, rank(e.form)))
        .unwrap_or(usual);
    let mut product =
        Product { entry: chosen, gpu: chosen.gpu.clone(), assumed: Vec::new(), warnings: Vec::new() };
    product.note_open_points(&said);
    if squashed(&named.spelling) == squashed(&chosen.family) {
        product.note_edition(&said);
    }
    product.note_rounding(traits.memory_gb.or_else(|| memory_in(&named.spelling)));
    if let Some((slices, gb)) = traits.mig {
        product.gpu = slice_of(chosen, slices, gb)?;
    }
    Ok(product)
}

impl Product<'_> {
    /// Say what the text left open among the variants that fit it.
    fn note_open_points(&mut self, said: &[&GpuEntry]) {
        let short = family_name(self.entry);
        if said.iter().any(|e| e.marketing_gb != self.entry.marketing_gb && e.form == self.entry.form) {
            let sizes = distinct(said.iter().map(|e| e.marketing_gb.to_string()));
            let chosen = self.entry.marketing_gb;
            self.assumed.push(ClusterAssumption {
                name: "gpu_memory".to_owned(),
                value: format!("{chosen} GB"),
                source: format!("{short} comes with {} GB; {chosen} GB is taken", sizes.join(" or ")),
            });
            self.warnings.push(ClusterWarning {
                code: "gpu_memory_assumed".to_owned(),
                message: format!(
                    "{short} comes with {} GB and the text does not say which: {chosen} GB is taken",
                    sizes.join(" or ")
                ),
            });
        }
        if said.iter().any(|e| e.form != self.entry.form) {
            let forms = distinct(said.iter().map(|e| form_name(e.form).to_owned()));
            self.assumed.push(ClusterAssumption {
                name: "form_factor".to_owned(),
                value: form_name(self.entry.form).to_owned(),
                source: format!(
                    "{short} comes as {}; {} is usual",
                    forms.join(", "),
                    form_name(self.entry.form)
                ),
            });
        }
    }
}

impl Product<'_> {
    /// "RTX PRO 6000" comes in editions of one size and form.
    fn note_edition(&mut self, said: &[&GpuEntry]) {
        let like = |e: &&&GpuEntry| e.marketing_gb == self.entry.marketing_gb && e.form == self.entry.form;
        let names = distinct(said.iter().filter(like).map(|e| e.gpu.key.clone()));
        if names.len() > 1 {
            self.assumed.push(ClusterAssumption {
                name: "gpu".to_owned(),
                value: self.entry.gpu.key.clone(),
                source: format!(
                    "{} comes as {}; {} is taken",
                    family_name(self.entry),
                    names.join(", "),
                    self.entry.gpu.key
                ),
            });
        }
    }

    /// "B200 192GB" is the part of 180 GB: say which size was taken.
    fn note_rounding(&mut self, said: Option<(f64, f64)>) {
        let taken = self.entry.marketing_gb;
        let usable = self.entry.driver_total_mib.map(|mib| (mib as f64 / 1024.0).round());
        let exact = |gb: f64| gb == taken as f64 || Some(gb) == usable;
        let near = |gb: f64| (gb - taken as f64).abs() <= taken as f64 * 2.0 * MEMORY_TOLERANCE;
        if let Some((gb, _)) = said.filter(|(low, high)| low == high && near(*low) && !exact(*low)) {
            self.assumed.push(ClusterAssumption {
                name: "gpu_memory".to_owned(),
                value: format!("{taken} GB"),
                source: format!("{} of {taken} GB is the nearest to {gb} GB", self.entry.gpu.short_name),
            });
        }
    }
}

/// The size in a spelling that has one: 192 of "B200 192GB".
fn memory_in(spelling: &str) -> Option<(f64, f64)> {
    let lower = spelling.to_ascii_lowercase();
    let number = lower.strip_suffix("gb").or_else(|| lower.strip_suffix('g'))?.trim_end();
    let start = number.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    let gb = number.get(start..)?.parse().ok()?;
    Some((gb, gb))
}

fn squashed(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

fn family_name(entry: &GpuEntry) -> String {
    entry.family.to_uppercase().replace('-', " ")
}

const fn form_name(form: Form) -> &'static str {
    match form {
        Form::Sxm => "SXM",
        Form::Pcie => "PCIe",
        Form::Nvl => "NVL",
        Form::Oam => "OAM",
        Form::Superchip => "superchip",
        Form::Soc => "SoC",
        Form::Pod => "pod",
    }
}

/// Modules before cards.
const fn rank(form: Form) -> u8 {
    match form {
        Form::Sxm | Form::Oam | Form::Superchip => 2,
        Form::Pcie => 1,
        _ => 0,
    }
}

fn usual_of<'c>(candidates: &[&'c GpuEntry]) -> Option<&'c GpuEntry> {
    candidates.iter().copied().max_by_key(|e| (rank(e.form), e.marketing_gb))
}

fn form_fits(form: Form, entry: &GpuEntry) -> bool {
    entry.form == form
        // H200 as a PCIe card is the NVL
        || form == Form::Pcie && entry.form == Form::Nvl && entry.family == "h200"
        || form == Form::Sxm && entry.form == Form::Oam
}

fn memory_fits((low, high): (f64, f64), entry: &GpuEntry) -> bool {
    let near = |gb: f64| gb >= low * (1.0 - MEMORY_TOLERANCE) && gb <= high * (1.0 + MEMORY_TOLERANCE);
    near(entry.marketing_gb as f64)
        || entry
            .driver_total_mib
            .is_some_and(|mib| near(mib as f64 * 1_048_576.0 / 1e9) || near(mib as f64 / 1024.0))
}

fn without_figures(named: &Named<'_>, catalogue: &HardwareCatalogue) -> ClusterError {
    for meaning in &named.described.meanings {
        if let Name::Incomplete(i) = meaning
            && let Some(incomplete) = catalogue.incomplete().nth(*i)
        {
            return ClusterError::no_figures(&named.spelling, &incomplete.missing);
        }
    }
    ClusterError::unknown_gpu(&named.spelling, catalogue.gpu_suggestions(&named.spelling))
}

fn no_such_variant(named: &Named<'_>, traits: Traits, family: &[&GpuEntry]) -> ClusterError {
    let variants: Vec<String> = family.iter().map(|e| e.gpu.key.clone()).collect();
    let superchip = family.iter().any(|entry| entry.form == Form::Superchip);
    if traits.form == Some(Form::Nvl) && superchip {
        let name = &named.spelling;
        let message = format!(
            "boards of {name} joined by NVLink are not in the catalogue, only superchips and NVL72 racks: how many GPUs is it?"
        );
        return ClusterError::ambiguous(message, [format!("4 {name}"), format!("72 {name}")]);
    }
    let asked = match (traits.memory_gb, traits.form) {
        (Some((low, high)), _) if low < high => format!("{low} to {high} GB"),
        (Some((gb, _)), _) => format!("{gb} GB"),
        (None, Some(form)) => format!("form {}", form_name(form)),
        (None, None) => "this variant".to_owned(),
    };
    let message = format!("{} does not come with {asked}; known are {}", named.spelling, variants.join(", "));
    ClusterError::ambiguous(message, variants)
}

/// A MIG slice as a product of its own: `slices` of the compute, and the memory and its bandwidth in proportion.
pub(super) fn slice_of(entry: &GpuEntry, slices: u64, gb: u64) -> Result<Gpu, ClusterError> {
    let capable = matches!(entry.gpu.compute_capability, Some((8, 0) | (9 | 10, _)));
    if !capable {
        return Err(ClusterError::unreadable(format!("{} cannot be cut into MIG slices", entry.gpu.name)));
    }
    if slices == 0 || slices > 7 || gb == 0 || gb > entry.marketing_gb {
        let message = format!(
            "{slices}g.{gb}gb is not a slice of {}: 1 to 7 compute slices, at most {} GB",
            entry.gpu.name, entry.marketing_gb
        );
        return Err(ClusterError::unreadable(message));
    }
    let compute = slices as f64 / MIG_COMPUTE_SLICES;
    let memory_slices = (gb as f64 / entry.marketing_gb as f64 * MIG_MEMORY_SLICES).round().max(1.0);
    let share = memory_slices / MIG_MEMORY_SLICES;
    let scale = |flops: Option<f64>| flops.map(|f| f * compute);
    let peak = entry.gpu.peak_flops;
    let mut sources = entry.gpu.sources.clone();
    sources.push(format!(
        "slice: {slices} of 7 compute slices, {memory_slices} of 8 memory slices of {}",
        entry.gpu.key
    ));
    Ok(Gpu {
        key: format!("{}-mig-{slices}g.{gb}gb", entry.gpu.key),
        name: format!("{} MIG {slices}g.{gb}gb", entry.gpu.name),
        short_name: format!("{} {slices}g.{gb}gb", entry.gpu.short_name),
        memory_bytes: Bytes::from_f64(entry.gpu.memory_bytes.as_f64() * share),
        driver_reserved_bytes: Bytes::ZERO,
        memory_assumed: true,
        hbm_bytes_per_s: entry.gpu.hbm_bytes_per_s * share,
        peak_flops: PeakFlops {
            fp16: scale(peak.fp16),
            bf16: scale(peak.bf16),
            fp8: scale(peak.fp8),
            fp4: scale(peak.fp4),
            int8: scale(peak.int8),
        },
        sources,
        slice_of: Some(entry.gpu.key.clone()),
        ..entry.gpu.clone()
    })
}
