from .alignment import rank_alignment as rank_alignment
from .facts import KnownFacts as KnownFacts, rank_facts as rank_facts
from .known_positives import KnownPositives as KnownPositives
from .known_triples import (
    RELATION_CATEGORIES as RELATION_CATEGORIES,
    KnownTriples as KnownTriples,
    relation_categories as relation_categories,
)
from .long_tables import rank_long_table as rank_long_table, rank_long_tables as rank_long_tables
from .scorers import EmbeddingScorer as EmbeddingScorer
from .triples import (
    rank_complex_queries as rank_complex_queries,
    rank_triples as rank_triples,
)
