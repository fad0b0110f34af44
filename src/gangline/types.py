"""The types of what a client returns, for annotations: `from gangline.types import JobView`."""

from gangline.core.access import OwnerView, SignInCode
from gangline.core.advice import Advice
from gangline.core.charts.histogram import Histogram
from gangline.core.charts.phases import TimelineMark, TimelineSegment
from gangline.core.charts.timeline import Bar
from gangline.core.datasets.findings import DatasetFindings, LikePhotos, PhotoFinding
from gangline.core.datasets.views import DatasetFileView, DatasetRemovalView, DatasetVersionView, DatasetView
from gangline.core.experiments.best import BestView
from gangline.core.experiments.halving import SavedView
from gangline.core.experiments.terms import HalvingTerms
from gangline.core.experiments.views import ExperimentPlanView, ExperimentRunView, ExperimentView
from gangline.core.files import File
from gangline.core.fleet.explained import JobOffer, JobOffers
from gangline.core.fleet.gauges import GaugesPoint, GaugesView, GpuGauges
from gangline.core.fleet.nodes import (
    BilledTime,
    MachineLoss,
    MachineRecord,
    MachineSummary,
    MachineView,
    NodeBill,
    NodeDetail,
    NodeJob,
    NodeTime,
    NodeView,
)
from gangline.core.fleet.pools import DriverSetting, DriverView, InstanceView, OfferView, PoolView
from gangline.core.jobs.clone import CloneView
from gangline.core.jobs.placement import FittingNode, PlacementView, RentableNode, Took, UnfitNode
from gangline.core.jobs.queue.views import QueuedJob, QueueGroup, QueueView
from gangline.core.jobs.story.band import PaceBand
from gangline.core.jobs.story.views import TimelineView
from gangline.core.money.spending import SpentPoint
from gangline.core.notices.views import EndpointView, NewEndpoint, NoticeTestView, NoticeView, ReplayView
from gangline.core.pictures.views import PictureView, WinnerView
from gangline.core.plans.document import BaseFacts
from gangline.core.plans.outlook import CardEstimate, CostEstimate, GpuMemory, TimeEstimate
from gangline.core.plans.stored import CaptionCounts
from gangline.core.plans.view import JobPlanView, PlanRowView
from gangline.core.reports.costs import (
    BudgetsView,
    CostForecast,
    CostRow,
    CostsView,
    ExperimentBudget,
    FleetView,
    PoolSpending,
    ProjectBudget,
)
from gangline.core.reports.report import PerJob, ReportedNodes, Spent, Wait
from gangline.core.reports.thresholds import ThresholdNotice, ThresholdView
from gangline.core.reports.view import JobLine, ReportView
from gangline.core.runs.extension import ExtensionView, ExtensionWay
from gangline.core.runs.kept import (
    CheckpointFilesView,
    CheckpointView,
    GoingView,
    JobSizeView,
    KeptView,
    RemovalView,
    StorageView,
    StoredFileView,
)
from gangline.core.runs.metrics import Measured
from gangline.core.runs.schedule import RateAt
from gangline.core.specs.changes import SettingChange
from gangline.core.views import (
    ArtifactView,
    AttemptView,
    BaseView,
    BatchLineView,
    DeliveryView,
    EndView,
    EventView,
    FactView,
    JobSummary,
    JobView,
    JoinTokenView,
    KeyView,
    LogView,
    MetricsView,
    NewJoinToken,
    NewKey,
    ProgressView,
    ProjectView,
    SamplesView,
    SavingView,
    SecretView,
    TrackedView,
)
from gangline.wire.transfers import PulledFiles, PushedVersion, TransferProgress, UploadedFiles

__all__ = [
    "Advice",
    "ArtifactView",
    "AttemptView",
    "Bar",
    "BaseFacts",
    "BaseView",
    "BatchLineView",
    "BestView",
    "BilledTime",
    "BudgetsView",
    "CaptionCounts",
    "CardEstimate",
    "CheckpointFilesView",
    "CheckpointView",
    "CloneView",
    "CostEstimate",
    "CostForecast",
    "CostRow",
    "CostsView",
    "DatasetFileView",
    "DatasetFindings",
    "DatasetRemovalView",
    "DatasetVersionView",
    "DatasetView",
    "DeliveryView",
    "DriverSetting",
    "DriverView",
    "EndView",
    "EndpointView",
    "EventView",
    "ExperimentBudget",
    "ExperimentPlanView",
    "ExperimentRunView",
    "ExperimentView",
    "ExtensionView",
    "ExtensionWay",
    "FactView",
    "File",
    "FittingNode",
    "FleetView",
    "GaugesPoint",
    "GaugesView",
    "GoingView",
    "GpuGauges",
    "GpuMemory",
    "HalvingTerms",
    "Histogram",
    "InstanceView",
    "JobLine",
    "JobOffer",
    "JobOffers",
    "JobPlanView",
    "JobSizeView",
    "JobSummary",
    "JobView",
    "JoinTokenView",
    "KeptView",
    "KeyView",
    "LikePhotos",
    "LogView",
    "MachineLoss",
    "MachineRecord",
    "MachineSummary",
    "MachineView",
    "Measured",
    "MetricsView",
    "NewEndpoint",
    "NewJoinToken",
    "NewKey",
    "NodeBill",
    "NodeDetail",
    "NodeJob",
    "NodeTime",
    "NodeView",
    "NoticeTestView",
    "NoticeView",
    "OfferView",
    "OwnerView",
    "PaceBand",
    "PerJob",
    "PhotoFinding",
    "PictureView",
    "PlacementView",
    "PlanRowView",
    "PoolSpending",
    "PoolView",
    "ProgressView",
    "ProjectBudget",
    "ProjectView",
    "PulledFiles",
    "PushedVersion",
    "QueueGroup",
    "QueueView",
    "QueuedJob",
    "RateAt",
    "RemovalView",
    "RentableNode",
    "ReplayView",
    "ReportView",
    "ReportedNodes",
    "SamplesView",
    "SavedView",
    "SavingView",
    "SecretView",
    "SettingChange",
    "SignInCode",
    "Spent",
    "SpentPoint",
    "StorageView",
    "StoredFileView",
    "ThresholdNotice",
    "ThresholdView",
    "TimeEstimate",
    "TimelineMark",
    "TimelineSegment",
    "TimelineView",
    "Took",
    "TrackedView",
    "TransferProgress",
    "UnfitNode",
    "UploadedFiles",
    "Wait",
    "WinnerView",
]
