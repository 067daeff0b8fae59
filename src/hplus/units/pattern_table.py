"""The table of patterns: how variants, chemical names, ions, strains, shorthand and numbers look.

Each pattern is named and has an example, which a test holds it to. Add one where spelling alone
decides; where meaning does, teach the CRF. Repetitions that a later part of a pattern can undo are
bounded, so that no text, however long and odd, takes more than linear time.
"""

from __future__ import annotations

from dataclasses import dataclass

from hplus.units.words import STOP_WORDS


@dataclass(frozen=True)
class Pattern:
    """A regular expression (verbose; a space is `[ ]`), tried where no word is under way.

    If it has a group `inner`, that is the match. example: a text in which it matches what stands
    between ⟦ and ⟧. needs: a short expression found in every text in which the pattern matches;
    the pattern is compiled when a text has that. plain: it may begin with a word of small
    letters alone and a space; most words are of that kind, so other patterns are not tried there.
    """

    name: str
    regex: str
    example: str
    needs: str
    begins: bool = False
    ends: bool = False
    plain: bool = False


def _one_of(words: str) -> str:
    return f"(?:{'|'.join(words.split())})"


_FUNCTION_WORD = rf"(?:{'|'.join(sorted(STOP_WORDS))})\b"
_DIGIT = r"\d"
_DIGITS = r"\d+(?:[.,·]\d+)*(?:[⁻⁺]?[⁰¹²³⁴-⁹]+)?"
_NUMBER = rf"(?:{_DIGITS}|\.\d+)"
_SIGNED = rf"[-−–+±]?{_NUMBER}"
_COMPARED = r"(?:[<>≤≥=≈~⩽⩾]=?|&[lg]t;)"
_POWER_OF_TEN = r"(?:\s?[×x]\s?10(?:\^?[-−]?\d+|\([-−]?\d+\)|[⁻⁰¹²³⁴-⁹]+)?)"
_EXPONENT = r"(?:\^?[-−]?[1-4]|[⁻]?[¹²³⁴])?"
_SYMBOL = (
    r"(?:%|‰|°\s?[CFK]?|"
    r"[kMcdmµμunpf]?(?:g|l|L|mol|m|Pa|Da|Gy|Sv|Bq|Hz|Ci|cal|eV)|[kmµμnf]s|[mµμnpk]?M|s|h|d|"
    r"mcg|cc|mm\s?Hg|cm\s?H2O|mEq|[mµμk]?I?U|[mk]?V|bpm|rpm|hrs?|mins?|secs?|wks?|yrs?|ppm|ppb|"
    r"dB|kb|Mb|bp|(?:hour|minute|second|day|week|month|year|unit|tablet|capsule|puff|drop|degree|"
    r"(?:milli|micro|kilo)?gram|lit(?:er|re)|(?:centi|milli|kilo)?met(?:er|re)|mile)s?|"
    r"percent|feet|inches)"
)
_PER = rf"(?:\s?[/·]\s?(?:1\.73\s?m(?:2|²)|(?:{_SYMBOL}|[a-zµ]{{1,6}}){_EXPONENT}))*"
_UNIT = (
    rf"(?:{_SYMBOL}{_EXPONENT}{_PER}(?!\w)|[/](?:{_SYMBOL}|[a-zµ]{{1,6}}){_EXPONENT}{_PER}(?!\w))"
)
_RANGE = rf"(?:\s?(?:to|through|-|–|—|±|/|:)\s?{_SIGNED})"
_VALUE = rf"{_SIGNED}{_POWER_OF_TEN}?{_RANGE}?{_POWER_OF_TEN}?(?:\s?{_UNIT})?"

_GENE = r"[A-Z][A-Z0-9]{1,9}(?:-[A-Z0-9]{1,4})?"
_RESIDUE = (
    r"(?:Ala|Arg|Asn|Asp|Cys|Gln|Glu|Gly|His|Ile|Leu|Lys|Met|Phe|Pro|Ser|Thr|Trp|Tyr|Val|Ter|Sec)"
)
_POSITION = r"[-*−]?\d+(?:[+−-]\d+)?"
_BASES = r"[ACGTUNacgtu]"
_CHANGE = (
    rf"(?:{_BASES}*>{_BASES}+|(?:del|dup|ins|inv|con)(?:{_BASES}+|\d+)?(?:ins(?:{_BASES}+|\d+))?)"
)
_ALLELE = r"\[[^\s\]]{1,60}\]"
_CODING = rf"[cgmnr]\.(?:{_POSITION}(?:_{_POSITION})?(?:{_CHANGE}|=|\?)?|{_ALLELE}(?:;{_ALLELE})?)"
_PROTEIN_CHANGE = (
    rf"(?:{_RESIDUE}|[A-Z])\d+(?:_(?:{_RESIDUE}|[A-Z])\d+)?"
    rf"(?:(?:{_RESIDUE}|[A-Z])?(?:fs(?:\*|Ter|X)?\d*|ext[*\w-]+)|(?:delins|del|dup|ins)\w*|"
    rf"{_RESIDUE}|[A-Z]|[*=?])"
)
_PROTEIN = rf"p\.(?:\({_PROTEIN_CHANGE}\)|{_PROTEIN_CHANGE})"
_TRANSCRIPT = r"(?:N[MCGPRT]_|ENS[TPG]|LRG_)\d+(?:\.\d+)?(?:\([\w-]+\))?:"

_CHARGE = r"(?:[1-4]?\+|\([1-4]?[+−-]\)|[¹²³⁴]?[⁺⁻])"
_METAL = _one_of(
    "NH4 H3O Na K Li H Ag Cs Rb Tl Ca Mg Zn Fe Cu Mn Co Ni Cd Pb Hg Ba Sr Al Cr La Gd Sn Ti"
)
_RADICAL = _one_of("HCO3 H2PO4 HPO4 PO4 HSO4 SO4 NO2 NO3 ClO4 SCN CN OH Cl Br")
_CATION = rf"(?:{_METAL}{_CHARGE})"
_ANION = (
    rf"(?:{_RADICAL}"
    r"(?:\([1-3]?[-−]\)|[¹²³]?⁻|[23]?[-−](?=[\s/),.;:\]-]|$)))"
)
_ION = rf"\[?\d?(?:{_CATION}|{_ANION})(?:\][io]?)?"
_MARKER = r"(?:[A-Z][A-Za-z]{0,4}-?[A-Z]?\d{0,3}[A-Za-z]?(?:\+|\(\+\)|⁺))"

_LOCANT = r"\d+[a-z]?['′]*(?:,\d+[a-z]?['′]*)*"
_INNER = r"\((?:[^\s()\[\]]|\([^\s()]*\)|\[[^\s\[\]()]*\])*\)"
_GROUP = rf"(?:{_INNER}|\[(?:[^\s\[\]()]|{_INNER})*\]|\{{[^\s{{}}]*\}})"
_CHEMICAL_START = (
    rf"(?:{_LOCANT}-(?=[a-zA-Zα-ω(\[])|(?:[NOSC](?:,[NO])?['′]?|D|L|DL|[opmn]|tert|sec|cis|"
    r"(?:all-)?trans|[αβγδ]|\d+[αβ]|[ΔΑΒ]\d*)-(?=[a-z(\[\d])"
    rf"|\((?:\d*[RSEZ](?:,\d*[RSEZ])*|[+±−-]|{_LOCANT})\)-(?=[\w(\[])"
    r"|(?:bis|tris|di|tri|tetra|mono)(?=[(\[](?:\d|[a-z]{3})))"
)
_SUFFIXED = (
    rf"[a-z]{{3,}}-{_LOCANT}-(?:[a-z]+-){{0,6}}[a-z]*"
    r"(?:ol|one|yl|ene|yne|en|yn|al|amine|ide|oic|ate)(?![\w-])"
)
_CHEMICAL_TAIL = rf"(?:[\wα-ωΑ-Ω]|{_GROUP}|[-,'′+:](?=[\wα-ω(\[]))*"
_CHEMICAL_WORD = (
    r"(?:[ ](?:acids?|esters?|ethers?|alcohol|aldehyde|sodium|potassium|"
    r"(?!rate|state|private|climate|estimate|candidate|certificate|debate|separate|moderate|"
    r"appropriate|adequate|site|white|despite|quite|write|side|wide|guide|aside|provide|include|"
    r"decide|beside|inside|outside|worldwide|suicide|late|date|template|plate|update|immediate|"
    r"intermediate|multivariate|univariate|bivariate|covariate|cognate|substrate|isolate|"
    r"surrogate|peptide|polypeptide|oligonucleotide|nucleotide)[a-z]{2,}(?:ate|ide|ite|ol)\b)"
    r"|(?<=vitamin)[ ][A-EK]\d{0,2}\b)*"
)

_VALUE_OF_STEP = r"(?:\d{1,2}[a-c]?|[IVX]{1,4}[A-Ca-c]?|[A-E]\d{0,2})"
_STEP = (
    r"(?:[Gg]rade|[Ss]tage|[Tt]ype|[Cc]lass(?:e(?=s))?|[Pp]hase|[Ll]evel|[Cc]ategory|[Dd]egree|"
    r"[Dd]ay|[Ww]eek|[Cc]ycle|[Gg]roup|[Cc]ohort|[Ff]actor|[Cc]omplex(?:e(?=s))?|[Cc]hromosome|"
    r"[Ee]xon|[Vv]itamin|[Hh]epatitis|[Ii]nfluenza)s?"
)
_COLLECTION = _one_of(
    "ATCC DSMZ DSM NCTC CCUG JCM NCIMB CBS NRRL LMG BCRC CIP CECT KCTC NBRC CGMCC"
)
_STRAIN = (
    rf"(?:O\d+(?::(?:K\d+|H\d+|NM|H-|HNM))*|{_COLLECTION}[ -]?[A-Z]*\d[\w-]*|K-12|"
    r"[A-Z]{1,4}\d+[A-Za-z0-9]*(?::\w+)?)(?!\w)"
)
_RANK = r"(?:serovar|serotype|serogroup|biovar|strain|(?:ser|str|var|subsp|ssp|sv|bv|pv)\.)"
# What stands before a route or a frequency: the end of a dose, or a route.
_AFTER_DOSE = (
    r"(?:(?<=[mµμk]g[ ])|(?<=\dg[ ])|(?<=\d[ ]g[ ])|(?<=m[lL][ ])|(?<=mcg[ ])|(?<=%[ ])|(?<=IU[ ])|"
    r"(?<=units[ ])|(?<=tablet[ ])|(?<=tablets[ ])|(?<=capsule[ ])|(?<=capsules[ ])|"
    r"(?<=puffs[ ])|(?<=drops[ ])|(?<=PO[ ])|(?<=IV[ ])|(?<=SC[ ])|(?<=IM[ ])|(?<=SQ[ ])|"
    r"(?<=mg[ ]po[ ])|(?<=mg[ ]iv[ ])|(?<=mg[ ]sc[ ])|(?<=[pisc]\.[ovcm]\.[ ]))"
)
_ADVERB = "daily|nightly|weekly|monthly"
_ORDER = "PO|IV|IM|SC|SQ|BID|TID|QID|QD|QHS|PRN|po|iv|im|sc|bid|tid|qid|qd|prn"
_TIME = r"(?:hours?|hrs?|h|days?|d|weeks?|wks?|months?|years?|yrs?|minutes?|min)"
_SMALL = r"(?:\d+|one|two|three|four|five|six|eight|ten|twelve)"
_FINDING = (
    r"(?:evidence|signs?|symptoms?|history|indications?|suggestion|features?|findings|complaints?)"
)

# Participles that are as often adjectives ("increased risk") as verbs; and a word before them that
# can be their subject: no adverb, adjective or participle.
_CHANGED = _one_of(
    "increased decreased reduced improved impaired enhanced elevated attenuated inhibited "
    "suppressed altered diminished lowered raised shortened prolonged delayed accelerated worsened "
    "induced activated blocked prevented promoted stimulated abolished restored augmented "
    "aggravated ameliorated exacerbated relieved"
)
_NOUN = (
    rf"(?!(?i:{_FUNCTION_WORD})|(?:[Nn]ot?|[Ww]ith|[Ww]ithout|[Hh]igher|[Ll]ower|[Oo]verall|[Ss]uch)\b)"
    r"[A-Za-z][a-z]{2,}(?<!ly)(?<!ed)(?<!ing)(?<!al)(?<!ive)"
    r"(?<!ble)(?<!ous)(?<!ic)(?<!ary)(?<!lar)(?<!est)(?<!parent)"
)

PATTERNS = (
    # Genes and chromosomes
    Pattern(
        "variant",
        rf"(?:{_TRANSCRIPT}|{_GENE}[ :])?(?:{_CODING}|{_PROTEIN})(?:[ ]?(?=[;])|(?![\w]))",
        "carriers of ⟦BRCA1 c.68_69delAG⟧ had cancer",
        needs=r"[cgmnr]\.[-*−\d\[]|p\.[(A-Z]",
        begins=True,
    ),
    Pattern(
        "substitution",
        rf"(?:{_GENE}[ ])?(?:{_RESIDUE}\d+(?:{_RESIDUE}|fs\*?\d*|\*)|IVS\d+[+-]\d+{_BASES}>{_BASES}"
        rf"|[-−]?\d+{_BASES}(?:>|/){_BASES}(?!\w))"
        r"|[A-Z][A-Z0-9]{1,7}[ -][ACDEFGHIKLMNPQRSTVWY]\d{1,4}[ACDEFGHIKLMNPQRSTVWYX*](?!\w)",
        "tumours with ⟦BRAF V600E⟧ regressed",
        needs=_DIGIT,
    ),
    Pattern(
        "star allele",
        r"(?:[A-Z][A-Za-z0-9]*(?:-[A-Z0-9]+)?[ ]?)?\*\d+(?::\d+){0,4}[A-Z]?(?:x\d)?"
        r"(?:/\*\d+[A-Z]?){0,3}(?!\w)",
        "typed as ⟦HLA-B*57:01⟧ by sequencing",
        needs=r"\*\d",
    ),
    Pattern(
        "karyotype",
        r"(?:t(?=\([\dXY]+;)|inv|del|dup|ins|add|der|idic|i|r)\([0-9XYpq;.]+\)(?:\([0-9pq;.]+\))*"
        r"|\d{2},X[XY]{0,2}(?:,[^\s,.;]+)*(?!\w)"
        r"|(?:[1-9]|1\d|2[0-2]|[XY])[pq]\d{1,2}(?:\.\d+)?(?:[-–][pq]?\d+(?:\.\d+)?)?(?!\w)",
        "with ⟦t(9;22)(q34;q11)⟧ in blasts",
        needs=r"\([\dXYpq;.]|\d,X|[\dXY][pq]\d",
    ),
    # Ions and surface markers
    Pattern(
        "ion",
        rf"{_ION}(?:[/:,-]?{_ION}){{0,4}}"
        r"(?:[- ](?:ATPases?|(?:ex|anti|co|sym|trans|uni)[a-z]*(?:changer|porter)s?)|-[a-z]{4,})?"
        r"(?![\w+])",
        "inhibits the ⟦Na+/K+-ATPase⟧ of cells",
        needs=r"[+⁺⁻]|\([1-4]?[−-]\)|(?:[234NH]|Cl|Br)[23]?[-−]",
    ),
    Pattern(
        "marker",
        rf"{_MARKER}(?:[/ ]?{_MARKER}|/?[A-Z][A-Za-z]{{0,4}}\d{{0,3}}[-−](?!\w)){{0,6}}(?![\w+])",
        "sorted ⟦CD4+CD25+⟧ cells",
        needs=r"[+⁺]",
    ),
    # Species, strains, lineages
    Pattern(
        "influenza strain",
        r"[ABCD]/(?:[A-Za-z][A-Za-z.' -]{1,25}/){1,2}[A-Z0-9-]+/\d{2,4}(?:[ ]?\(H\d+N\d+\))?",
        "against ⟦A/Puerto Rico/8/34 (H1N1)⟧ in mice",
        needs=r"[ABCD]/[A-Za-z]",
    ),
    Pattern(
        "species",
        rf"(?:[A-Z]|Ae|An|Cx|Staph|Strep|Tr)\.[ ]?(?!{_FUNCTION_WORD})[a-z]{{4,}}(?![\w.])"
        rf"(?:[ ](?:{_RANK}[ ][\w:-]+|{_STRAIN}))?",
        "grown from ⟦E. coli O157:H7⟧ in milk",
        needs=r"(?:[A-Z]|Ae|An|Cx|Staph|Strep|Tr)\.[ ]?[a-z]{4}",
    ),
    Pattern(
        "genus",
        rf"[A-Z][a-z]{{3,}}[ ](?:spp?\.|[a-z]{{4,}}[ ]{_RANK}[ ][A-Z\d][\w:-]*"
        rf"|[a-z]{{4,}}[ ](?:(?:subsp|ssp|var)\.[ ][a-z]{{3,}}|O\d+:H\d+"
        rf"|{_COLLECTION}[ ]?[A-Z]*\d[\w-]*))",
        "caused by ⟦Candida spp.⟧ in blood",
        needs=rf"spp?\.|{_RANK}|{_DIGIT}",
    ),
    Pattern(
        "strain",
        rf"O\d+:(?:K\d+|H\d+|NM|H-)(?::H\d+)?|{_COLLECTION}[ ]?[A-Z]*\d[\w-]*"
        r"|[A-Z]{1,3}(?:\.\d+){2,}(?!\w)"
        r"|[ABC]/H\d+N\d+|C57BL/\w+|BALB/c\w*|NOD/\w+|DBA/\d\w*|C3H/\w+|129\w*/\w+",
        "lineage ⟦B.1.1.7⟧ spread",
        needs=rf"{_DIGIT}|BALB/|NOD/",
    ),
    # Shorthand
    Pattern(
        "slashed abbreviation",
        r"(?!(?:or|if|he)/)[A-Za-z][a-z]?/(?:[a-z]/)?[a-z](?![\w/])|w/(?=[ ])|vs\.?(?=[ ])",
        "Pt ⟦c/o⟧ headache",
        needs=r"/|vs",
        begins=True,
        ends=True,
        plain=True,
    ),
    Pattern(
        "slashed capitals",
        r"[A-Z](?:/[A-Z])+(?![\w/])",
        "denies ⟦N/V/D⟧ today",
        needs=r"[A-Z]/[A-Z]",
    ),
    Pattern(
        "dosing abbreviation",
        r"(?:p\.o|[btq]\.i\.d|[qo]\.d|q\.o\.d|q\.h\.s|h\.s|p\.r\.n|a\.c|p\.c|s\.l|e\.g|i\.e)\.?(?!\w)"
        r"|q[ ]?\d{1,2}[ ]?h(?!\w)|q(?:hs|am|pm|od|wk)(?!\w)",
        "warfarin ⟦p.o.⟧ at night",
        needs=r"[a-z]\.[a-z]|q[ ]?\d|q(?:hs|am|pm|od|wk)",
        begins=True,
        ends=True,
    ),
    Pattern(
        "route",
        r"(?:i\.v|i\.m|s\.c|i\.p|i\.d|i\.t|i\.n)\.?(?!\w)",
        "given ⟦i.v.⟧ twice",
        needs=r"[is]\.[a-z]",
        begins=True,
    ),
    Pattern(
        "dotted abbreviation",
        r"(?:[A-Za-z]\.){2,4}(?!\w)",
        "in the ⟦U.S.⟧ army",
        needs=r"[A-Za-z]\.[A-Za-z]\.",
    ),
    Pattern(
        "schedule",
        rf"(?:once|twice|thrice|{_SMALL}[ ]times)[ ]"
        r"(?:daily|weekly|monthly|nightly|(?:an?|per|each|every)[ ](?:day|week|month))(?!\w)"
        rf"|every[ ](?:other[ ]|{_SMALL}[ ])?{_TIME}(?!\w)|every[ ](?:morning|evening|night)(?!\w)"
        rf"|{_AFTER_DOSE}(?:(?:{_ADVERB})(?![ ](?:dos|intake))|{_ORDER})(?!\w)",
        "aspirin ⟦twice daily⟧ with food",
        needs=rf"(?:on|twi|thri)ce[ ]|times[ ]|every[ ]|[ ](?:{_ADVERB}|{_ORDER})(?!\w)",
        begins=True,
        ends=True,
        plain=True,
    ),
    Pattern(
        "duration",
        rf"[x×][ ]?{_NUMBER}(?:[-–]{_NUMBER})?[ ]?{_TIME}(?!\w)",
        "cough ⟦x 3 days⟧ without fever",
        needs=r"[x×][ ]?[.\d]",
        begins=True,
        ends=True,
        plain=True,
    ),
    # Several of a kind, and words that share a head
    Pattern(
        "steps",
        rf"{_STEP}[ ]{_VALUE_OF_STEP}(?:(?:[ ]?[-–/,&][ ]?|,?[ ](?:and|or|to|and/or)[ ]"
        rf"(?:(?:grade|stage|type|class|phase)[ ])?){_VALUE_OF_STEP}){{1,6}}(?![\w-])"
        rf"(?:[ ](?!{_FUNCTION_WORD})[a-z]{{4,}}(?<!ed)(?<!ly)(?!\w))?",
        "with ⟦grade 3 or 4 neutropenia⟧ in all",
        needs=rf"[a-z][ ]{_VALUE_OF_STEP}[ ,/&–-]",
        plain=True,
    ),
    Pattern(
        "hanging hyphen",
        r"(?:[A-Za-z]?[a-z]{1,20}-(?:,[ ][a-z]{1,20}-){0,2},?[ ](?:and|or|to|and/or|versus)[ ]"
        r"(?!non-)[a-z]+(?:-[a-z]+)*"
        r"|[α-ω]-(?:,[ ][α-ω]-)?,?[ ](?:and|or)[ ][α-ω]-[a-z]+)",
        "⟦short- and long-term⟧ effects",
        needs=r"-,?[ ]",
    ),
    # Chemical names
    Pattern(
        "chemical name",
        rf"(?<![-–/.,])(?<!vitamin[ ])"
        rf"(?:{_CHEMICAL_START}{_CHEMICAL_TAIL}|{_SUFFIXED}|poly\([\w ,-]{{3,60}}\))"
        rf"{_CHEMICAL_WORD}",
        "gave ⟦2-(4-isobutylphenyl)propanoic acid⟧ by mouth",
        needs=rf"{_DIGIT}|[(\[]|(?<!\w)(?:[A-Z],?[A-Z]?['′]?|[opmn]|tert|sec|cis|trans|[αβγδΔΑΒ])-",
    ),
    # Numbers
    Pattern(
        "statistic",
        r"(?:[Pp]|[Nn]|[Rr]²?|R2|I2|I²|[χX]2|[χX]²|[tFzZdQUk]|df|κ|β|α|ρ|η2|η²|W?MD|SMD|ICC|AUC|"
        r"SD|SEM?|[as]?HR|[ac]?OR|RR|IRR)(?:-?[ ]?values?|s)?(?:[ ]?\(\d+(?:,[ ]?\d+)?\))?"
        rf"(?:\s?{_COMPARED}\s?{_VALUE}|(?<=R)[ ]\d+\.\d+(?!\w))",
        "lower (⟦P < 0.001⟧) in women",
        needs=rf"{_COMPARED}|R[ ]\d",
        plain=True,
    ),
    Pattern(
        "interval",
        r"\d+(?:\.\d+)?\s?%[ -]?(?:CI|CrI|PI)s?(?!\w)",
        "(⟦95% CI⟧ 0.5 to 0.9)",
        needs=r"%[ -]?(?:CI|CrI|PI)",
    ),
    Pattern(
        "comparison",
        rf"{_COMPARED}\s?{_VALUE}",
        "pressure ⟦> 140 mmHg⟧ at rest",
        needs=_COMPARED,
        begins=True,
    ),
    Pattern(
        "approximation",
        rf"(?:approximately|nearly|roughly)[ ]{_VALUE}(?![\w-])",
        "for ⟦approximately 2 h⟧ a day",
        needs=r"ly[ ][-−–+±]?[.\d]",
        plain=True,
    ),
    Pattern(
        "dose",
        rf"(?<![\w.,/-]){_SIGNED}{_POWER_OF_TEN}?{_RANGE}?{_POWER_OF_TEN}?\s?{_UNIT}",
        "warfarin ⟦5 mg⟧ for a week",
        needs=_DIGIT,
        begins=True,
    ),
    Pattern(
        "value",
        rf"(?<![\w.,/-])(?:{_SIGNED}(?:{_POWER_OF_TEN}|{_RANGE})|[-−–+±]{_NUMBER})%?(?![\w-])",
        "(⟦0.58 to 0.89⟧) in men",
        needs=_DIGIT,
    ),
    # Names of one thing on either side of a slash are two units
    Pattern(
        "spaced slash",
        r"(?<=[\w)][ ])/(?=[ ][\w(])",
        "whooping cough ⟦/⟧ pertussis",
        needs=r"[ ]/[ ]",
        begins=True,
        ends=True,
    ),
    Pattern(
        "slash between phrases",
        rf"(?=[a-z]+[ ][a-z]+/)(?!{_FUNCTION_WORD})"
        rf"[a-z]{{3,}}(?<!ed)(?<!ly)(?<!ing)(?<!ial)(?<!ary)(?<!ous)[ ]"
        rf"[a-z]{{4,}}(?P<inner>/)[a-z]{{4,}}[ ](?!{_FUNCTION_WORD})[a-z]{{3,}}",
        "heart attack⟦/⟧myocardial infarction",
        needs=r"[a-z]/[a-z]",
        begins=True,
        ends=True,
        plain=True,
    ),
    # A verb between a noun and its object
    Pattern(
        "verb",
        rf"(?:(?:[Tt]he|[Tt]hese|[Tt]hose|[Tt]h[ai][ts]|[Oo]ur)[ ]|(?<=[.:;][ ])|(?<![\S\s]))"
        rf"{_NOUN}[ ](?:(?:significantly|markedly|also|strongly|slightly|further)[ ])?"
        rf"(?P<inner>{_CHANGED})(?=[ ][A-Za-z])",
        "the drug ⟦increased⟧ blood pressure",
        needs=r"ed[ ][A-Za-z]",
        begins=True,
        ends=True,
        plain=True,
    ),
    # What is denied belongs to its denial
    Pattern(
        "negation",
        r"(?:(?<!or[ ])(?<!and[ ])(?:[Ww]ithout(?:[ ](?:any|an?))?|[Nn]o)"
        rf"(?:[ ](?:[a-z]{{4,}}[ ])?{_FINDING}[ ](?:of|for)(?:[ ](?:any|an?|the))?)?"
        rf"|[Nn]egative[ ]for)[ ](?!{_FUNCTION_WORD})[A-Za-z][\w-]*",
        "shows ⟦no pulmonary⟧ embolism",
        needs=r"[Ww]ithout[ ]|[Nn]o[ ]|[Nn]egative[ ]for[ ]",
        begins=True,
        plain=True,
    ),
)
