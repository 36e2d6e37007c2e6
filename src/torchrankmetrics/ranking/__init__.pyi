from .accumulator import RankAccumulator as RankAccumulator
from .embeddings import Candidates as Candidates, rank_embeddings as rank_embeddings
from .lists import ranks_of_lists as ranks_of_lists
from .ranks import Ranks as Ranks, rank_scores as rank_scores
